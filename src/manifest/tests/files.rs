use super::*;

const BEGIN: &str = "<!-- every key: begin (generated from the field table; a test compares) -->\n";
const END: &str = "<!-- every key: end -->";

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_committed_manifest_expands() {
    let mut found = Vec::new();
    let within =
        |folder: &str| std::fs::read_dir(repository().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let files = within("manifests").chain(within("manifests/reference")).filter(|path| path.is_file());
    for path in files {
        let manifest = load(&path).unwrap_or_else(|error| panic!("{error}"));
        assert!(manifest.objective.is_some(), "{}", path.display());
        found.push(format!("{} {}", manifest.name, manifest.cells.len()));
    }
    found.sort();
    let expected = ["external 6", "mnist-accuracy 1", "optimizers-linear 27", "optimizers-mnist 32", "quickstart 9"];
    for line in expected {
        assert!(found.iter().any(|found| found == line), "{line} is not among {found:?}");
    }
}

#[test]
fn the_reference_in_the_docs_is_up_to_date() {
    let path = repository().join("docs/manifest.md");
    let docs = std::fs::read_to_string(&path).unwrap();
    let begin = docs.find(BEGIN).unwrap() + BEGIN.len();
    let end = docs.find(END).unwrap();
    assert!(
        docs[begin..end] == reference_markdown(),
        "the table in {} is not that of the fields (put this there):\n{}",
        path.display(),
        reference_markdown()
    );
}

#[test]
fn the_examples_in_the_docs_are_valid() {
    let docs = std::fs::read_to_string(repository().join("docs/manifest.md")).unwrap();
    let examples: Vec<_> = docs.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let cells: Vec<_> = examples.iter().map(|text| read(text).cells.len()).collect();
    assert_eq!(cells, [1, 18, 5, 2, 1, 1]);
}

#[test]
fn the_schema_has_every_key_that_can_be_used() {
    let schema = schema();
    let properties = |schema: &Value| schema.as_table().unwrap()["properties"].as_table().unwrap().clone();
    let top = properties(&schema);
    for field in fields() {
        let usable = field.is_writable() && field.key != "params.*";
        let present = match field.key.split_once('.') {
            None => top.contains_key(field.key),
            Some(("params", _)) => false,
            Some((section, leaf)) => properties(&top[section]).contains_key(leaf),
        };
        assert_eq!(present, usable, "{}", field.key);
    }
}

#[test]
fn the_table_of_fields_is_consistent() {
    let mut keys = BTreeSet::new();
    for (row, field) in fields().iter().enumerate() {
        assert!(keys.insert(field.key), "{} stands twice", field.key);
        assert!(!field.meaning.ends_with('.') && !field.meaning.contains('|'), "{}", field.key);
        if let Some(when) = field.when.filter(|when| when.field != "[program]") {
            let other = fields().iter().position(|other| other.key == when.field).unwrap();
            assert!(other < row, "{} depends on a later field", field.key);
            let (Kind::Choice(words) | Kind::Known(words)) = fields()[other].kind else { panic!("{}", field.key) };
            assert!(when.is.iter().all(|word| words.contains(word)), "{}", field.key);
        }
        if let Preset::Is(constant) = field.preset {
            let fits = match (field.kind, constant) {
                (Kind::Int { min, max }, Constant::Int(value)) => (min..=max).contains(&value),
                (Kind::OneOf(numbers), Constant::Int(value)) => numbers.contains(&value),
                (Kind::Real(interval), Constant::Real(value)) => interval.contains(value),
                (Kind::Choice(words), Constant::Text(word)) => words.contains(&word),
                (Kind::Text { .. }, Constant::Text(_)) | (Kind::Seed, Constant::Int(_)) => true,
                _ => false,
            };
            assert!(fits, "the default of {} does not fit", field.key);
        }
    }
}

#[test]
fn named_files_have_positions() {
    let text = "model.name = 'x'\ndata = { name = 'own', path = ['a', \"é\", 'c'] }\n\
                container = { image = 'i.sif', binds = ['/a', '/b:/c:rw'] }\n[program]\ncommand = ['python3', 'train.py']\n\
                files = ['lib.py',\n  'train.py']\n[[grid.include]]\ndata.path = 'd'\n";
    let manifest = parse(text, "m").unwrap_or_else(|error| panic!("{error}"));
    let place = |key, text| manifest.place(key, text);
    let paths = ["a", "c", "d"].map(|path| place("data.path", path).unwrap());
    assert_eq!(paths, ["m:2:32", "m:2:42", "m:9:13"]);
    assert_eq!(place("container.image", "i.sif"), Some("m:3:23"));
    assert_eq!(place("container.binds", "/b:/c:rw"), Some("m:3:40"));
    assert_eq!(place("program", "lib.py"), Some("m:6:10"));
    assert_eq!(place("program", "train.py"), Some("m:5:23"), "where it stands first");
    assert_eq!((place("program", "a"), place("data.path", "b")), (None, None));
}
