//! Research objects.

use super::*;

/// Collects every `@id` that is referred to.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::List(items) => items.iter().for_each(|item| references(item, found)),
        Value::Table(table) if table.len() == 1 && table.contains_key("@id") => found.push(table["@id"].to_string()),
        Value::Table(table) => table.values().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn a_research_object_describes_every_entity_that_it_refers_to() {
    use crate::record::{Digest, SourceText};
    use crate::wire::{decode_pack, encode_pack, from_json};
    let [mut whole, failed] = both();
    let sum = "ab".repeat(32);
    for (name, value) in [("image.sha256", sum.as_str()), ("image.path", "/x/../y.sif"), ("OMP_NUM_THREADS", "3")] {
        whole.sealed.attempt.facts.insert(name.to_owned(), value.into());
    }
    whole.id = whole.sealed.attempt.id();
    let source = SourceText { original: Digest::of(b"a"), is_redacted: false, kept: b"a".to_vec() };
    let points = [points_of(&whole), points_of(&failed)];
    let pack = |entry: &Entry, out: &mut dyn Sink| out.write_all(&encode_pack(&entry.sealed).unwrap());
    let packs = [&whole, &failed].map(|entry| move |out: &mut dyn Sink| pack(entry, out));
    let of = |entry, at: usize, sources| Sourced { entry, points: &points[at], pack: &packs[at], sources };
    let sourced = [of(&whole, 0, vec![("manifest", source.clone())]), of(&failed, 1, vec![("manifest", source)])];
    let about = CrateOf { author: Some("Ada Lovelace".to_owned()), license: None, unix_ms: 1_541_665_135_510 };
    let mut twice = ResearchObject::default();
    assert_eq!([0, 0].map(|index: usize| twice.add(&sourced[index]).is_empty()), [false, true], "each file once");
    let mut made = ResearchObject::new(about);
    let mut files: Vec<Written> =
        sourced.iter().flat_map(|sourced| made.add(sourced)).map(|file| content(&file)).collect();
    files.iter().for_each(|(path, bytes)| made.sized(path, bytes.len() as u64));
    files.push(content(&made.finish()));
    let (_, metadata) = files.iter().find(|(path, _)| path.ends_with("ro-crate-metadata.json")).unwrap();
    let Ok(Value::Table(document)) = from_json(std::str::from_utf8(metadata).unwrap()) else { panic!("no JSON") };
    let Value::List(graph) = &document["@graph"] else { panic!("no graph") };
    let graph: Vec<&Table> = graph.iter().filter_map(Value::as_table).collect();
    let described: Vec<String> = graph.iter().map(|entity| entity["@id"].to_string()).collect();
    assert_eq!(described.iter().collect::<BTreeSet<_>>().len(), described.len(), "each once");
    let mut referred = Vec::new();
    graph.iter().for_each(|entity| entity.values().for_each(|value| references(value, &mut referred)));
    assert!(referred.len() > 20);
    for id in referred.iter().filter(|id| !id.starts_with("https://w3id.org/")) {
        assert!(described.contains(id), "{id} is not described");
    }
    let mut parts = vec!["ro-crate-metadata.json".to_owned()];
    references(&graph.iter().find(|entity| entity["@id"] == "./".into()).unwrap()["hasPart"], &mut parts);
    let mut there: Vec<String> = files.iter().map(|(path, _)| path.display().to_string()).collect();
    parts.sort();
    there.sort();
    assert_eq!(parts, there);
    let actions: Vec<&&Table> = graph.iter().filter(|entity| entity["@type"] == "CreateAction".into()).collect();
    let has = |name: &str, value: &str| actions.iter().filter(|action| action.get(name) == Some(&value.into())).count();
    assert_eq!(has("actionStatus", "http://schema.org/CompletedActionStatus"), 1);
    assert_eq!(has("actionStatus", "http://schema.org/FailedActionStatus"), 1);
    assert_eq!((has("error", "out of\nmemory"), has("startTime", "2018-11-08T08:18:55.510+00:00")), (1, 2));
    assert_eq!(actions.iter().filter(|action| action.contains_key("containerImage")).count(), 1);
    let named = |name: &str| *graph.iter().find(|entity| entity.get("name") == Some(&name.into())).unwrap();
    assert_eq!(named("y.sif")["sha256"], sum.into());
    assert_eq!(
        (&named("inference_time@32")["value"], &named("inference_time@32")["unitText"]),
        (&0.125.into(), &"s".into())
    );
    assert_eq!(named("perplexity")["value"], "inf".into());
    // The terms in use that RO-Crate's own context has. The validator refuses any other term that the crate's context does not define.
    let known = "@id @type about actionStatus additionalType agent author conformsTo contentSize datePublished description \
                 encodingFormat endTime error hasPart identifier instrument license mentions name object result \
                 softwareVersion startTime unitText value version";
    let Value::List(contexts) = &document["@context"] else { panic!("no contexts") };
    let own = contexts[1].as_table().unwrap();
    for term in graph.iter().flat_map(|entity| entity.keys()) {
        assert!(own.contains_key(term) || known.split(' ').any(|known| known == term), "`{term}` is not defined");
    }
    let sizes: BTreeMap<String, String> = graph
        .iter()
        .filter(|entity| entity["@type"] == "File".into())
        .map(|entity| (entity["@id"].to_string(), entity["contentSize"].to_string()))
        .collect();
    let of_files = files.iter().filter(|(path, _)| !path.ends_with("ro-crate-metadata.json"));
    assert_eq!(sizes, of_files.map(|(path, bytes)| (path.display().to_string(), bytes.len().to_string())).collect());
    // Each can be imported again.
    let packs: Vec<_> = files.iter().filter(|(path, _)| path.ends_with("attempt.ledger")).collect();
    assert!(packs.len() == 2 && packs.iter().all(|(_, bytes)| decode_pack(bytes).is_ok()));
}
