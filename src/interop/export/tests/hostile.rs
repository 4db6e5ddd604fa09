//! Names and texts that other programs would execute or refuse.

use super::*;

#[test]
fn no_cell_of_safe_csv_is_a_formula() {
    let mut hostile = entry(Outcome::Finished, 1);
    let metrics = &mut hostile.sealed.attempt.metrics;
    metrics.clear();
    metrics.insert("=1+1".to_owned(), Metric::new(-2.5, ""));
    metrics.insert("@sum".to_owned(), Metric::missing("s", "-1+cmd"));
    let rows = |encoding| text(written(encoding, [long(std::slice::from_ref(&hostile))]));
    let (raw, safe) = (rows(Encoding::Csv), rows(Encoding::CsvSafe));
    assert!(raw.contains(",metric,=1+1,-2.5,,") && raw.contains(",metric,@sum,,,s,,-1+cmd\n"), "{raw}");
    assert!(safe.contains(",metric,'=1+1,-2.5,,") && safe.contains(",metric,'@sum,,,s,,'-1+cmd\n"), "{safe}");
    let heads = text(written(Encoding::CsvSafe, [wide(std::slice::from_ref(&hostile))]));
    assert!(heads.lines().next().unwrap().contains(",'=1+1"), "{heads}");
}

#[test]
fn names_too_long_for_file_systems_are_cut_and_get_a_hash() {
    let long = ["é".repeat(128), format!("{}è", "é".repeat(127)), "温".repeat(200), "a".repeat(256)];
    let mut entry = entry(Outcome::Finished, 1);
    for name in &long {
        entry.sealed.attempt.metrics.insert(name.clone(), Metric::new(1.0, ""));
    }
    entry.sealed.attempt.settings.insert("experiment.name".to_owned(), long[2].as_str().into());
    let components = |paths: Vec<PathBuf>| {
        let all = paths.iter().flat_map(|path| path.iter().map(|part| part.to_str().unwrap().to_owned()));
        let all: Vec<String> = all.collect();
        assert!(all.iter().all(|part| part.len() <= 250), "{all:?}");
        all
    };
    let mlflow = components(mlflow(&entry, Path::new("/m")).files.into_iter().map(|(path, _)| path).collect());
    for start in ["é", "温", "aaaa"] {
        assert!(mlflow.iter().any(|part| part.starts_with(start) && part.contains('_')), "{start}: {mlflow:?}");
    }
    let accented: BTreeSet<&String> = mlflow.iter().filter(|part| part.starts_with('é')).collect();
    assert_eq!(accented.len(), 2, "each has its own hash");
    components(vec![tensorboard(&entry).0]);
    let log = components(vec![mllog(&entry).0]);
    assert!(log[0].ends_with(".txt"));
    assert_eq!(entry.long_names(true).len(), 4);
    assert_eq!(entry.long_names(false), BTreeSet::from([long[2].clone()]));
    assert_eq!(fitted("short", "short", 250), "short");
}
