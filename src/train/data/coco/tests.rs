use super::link::PICTURE;
use super::*;
use proptest::prelude::*;

/// Ids neither start at 0 nor are in order. The annotations precede the entries that they refer to.
const FILE: &str = r#"{
    "info": {"year": 2017, "tags": [1, {"a": "]}"}]},
    "annotations": [
        {"id": 8, "image_id": 30, "category_id": 90, "bbox": [1, 2, 3.5, 2], "area": 5.25, "iscrowd": 0,
         "segmentation": [[1, 2, 4.5, 2, 4.5, 4, 1, 4], [0, 0, 1, 0, 1, 1, 0, 1]]},
        {"id": 5, "image_id": 30, "category_id": 7, "bbox": [0, 0, 2, 4], "area": 8, "iscrowd": 1,
         "segmentation": {"size": [4, 6], "counts": [0, 8, 16]}},
        {"id": 9, "image_id": 30, "category_id": 7, "bbox": [6, 1, 0.5, 2], "area": 0,
         "segmentation": {"counts": "07a0", "size": [4, 6]}}
    ],
    "images": [
        {"id": 30, "width": 6, "height": 4, "file_name": "some/b.jpg", "license": 3},
        {"id": 2, "width": 60, "height": 40, "file_name": "a.jpg"}
    ],
    "categories": [{"id": 90, "name": "brush", "supercategory": "indoor"}, {"id": 7, "name": "train"}]
}"#;

fn parsed(text: &str, parts: Parts) -> Result<Instances, CocoError> {
    Instances::parse(Path::new("file.json"), text.as_bytes(), parts)
}

fn read() -> Instances {
    parsed(FILE, Parts::Masks).expect("valid")
}

/// Returns the error for the file with one part of it changed.
fn fault(from: &str, to: &str) -> String {
    assert_eq!(FILE.matches(from).count(), 1, "{from}");
    parsed(&FILE.replace(from, to), Parts::Masks).expect_err("a fault").to_string()
}

#[test]
fn images_and_classes_are_in_the_order_of_ids() {
    let read = read();
    let images: Vec<_> = read.images().iter().map(|image| (image.id, image.size, image.objects.len())).collect();
    let size = |width, height| Size { width, height };
    assert_eq!(images, [(2, size(60, 40), 0), (30, size(6, 4), 3)]);
    assert_eq!(read.images()[1].file, Path::new("some/b.jpg"));
    let objects: Vec<_> =
        read.images()[1].objects.iter().map(|object| (object.id, object.class, object.crowd)).collect();
    assert_eq!(objects, [(8, 1, false), (5, 0, true), (9, 0, false)]);
    let categories: Vec<_> = read.categories().iter().map(|category| (category.id, category.name.as_str())).collect();
    assert_eq!(categories, [(7, "train"), (90, "brush")]);
    let first = &read.images()[1].objects[0];
    assert_eq!((first.bounds.array(), first.area), ([1.0, 2.0, 3.5, 2.0], 5.25));
}

/// The image of 6 × 4 pixels keeps its size in a square of 6, with a row of the frame above and below.
#[test]
fn every_form_of_an_outline_gives_its_pixels() {
    let read = read();
    let image = &read.images()[1];
    let square = square::Square::new(image.size, 6);
    let objects: Vec<_> = image.objects.iter().map(|object| square.object(object)).collect();
    let rows = |n: usize| {
        let mask = objects[n].mask.as_ref().expect("masks were read");
        mask.to_bitmap().chunks(6).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    // A column is drawn if its middle is inside. 4.5, rounded up to 23 on the fine grid, lies beyond the middle of
    // column 4.
    assert_eq!(rows(0), [[0; 6], [1, 0, 0, 0, 0, 0], [0; 6], [0, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 0], [0; 6]]);
    let two = [1, 1, 0, 0, 0, 0];
    assert_eq!(rows(1), [[0; 6], two, two, two, two, [0; 6]]);
    // `0`: none clear; `7`: 7 set; `a0`: 17 in two groups, as 17 has the bit of the sign.
    let one = [1, 0, 0, 0, 0, 0];
    assert_eq!(rows(2), [[0; 6], two, two, two, one, [0; 6]]);
    let rest: Vec<_> = objects.iter().map(|object| (object.class, object.area, object.crowd)).collect();
    assert_eq!(rest, [(1, 5.25, false), (0, 8.0, true), (0, 0.0, false)]);
}

#[test]
fn boxes_alone_need_no_outlines() {
    let without = FILE.replace("segmentation", "other");
    let read = parsed(&without, Parts::Boxes).expect("valid");
    assert!(read.images()[1].objects.iter().all(|object| object.outline.is_none()));
    let fault = parsed(&without, Parts::Masks).expect_err("no outlines").to_string();
    assert!(
        fault.starts_with("file.json:4:9: `annotations[0]` (id 8): `segmentation` is missing (it must be "),
        "{fault}"
    );
}

#[test]
fn entries_that_do_not_fit_together_are_named() {
    assert_eq!(
        fault("\"image_id\": 30, \"category_id\": 90", "\"image_id\": 31, \"category_id\": 90"),
        "file.json:4:9: `annotations[0]` (id 8): image 31 is not in `images` (add it or remove the annotation)"
    );
    assert_eq!(
        fault("{\"id\": 5, \"image_id\": 30, \"category_id\": 7", "{\"id\": 5, \"image_id\": 30, \"category_id\": 6"),
        "file.json:6:9: `annotations[1]` (id 5): category 6 is not in `categories` (add it or remove the annotation)"
    );
    assert_eq!(
        fault("{\"id\": 9,", "{\"id\": 8,"),
        "file.json:8:9: `annotations[2]` (id 8): its id is that of `annotations[0]` as well (give every id once)"
    );
    assert_eq!(
        fault("{\"id\": 2,", "{\"id\": 30,"),
        "file.json:13:9: `images[1]` (id 30): its id is that of `images[0]` as well (give every id once)"
    );
    assert_eq!(
        fault("{\"id\": 7, \"name\"", "{\"id\": 90, \"name\""),
        "file.json:15:76: `categories[1]` (id 90): its id is that of `categories[0]` as well (give every id once)"
    );
}

#[test]
fn fields_of_the_wrong_kind_are_named() {
    let first = "file.json:4:9: `annotations[0]` (id 8): ";
    let bounds = "(it must be four numbers: [x, y, width, height])";
    assert_eq!(fault("[1, 2, 3.5, 2]", "[1, 2, 3.5]"), format!("{first}`bbox` is [1,2,3.5] {bounds}"));
    assert_eq!(fault("[1, 2, 3.5, 2]", "[1, 2, 3.5, null]"), format!("{first}`bbox` is [1,2,3.5,null] {bounds}"));
    assert_eq!(
        fault("[1, 2, 3.5, 2]", "[1, 2, -3.5, 2]"),
        format!(
            "{first}the box `bbox` is -3.5 wide and 2 high (it must be [x, y, width, height], the last two not below 0)"
        )
    );
    assert_eq!(
        fault("\"area\": 5.25, ", ""),
        format!("{first}`area` is missing (it must be the area of the object's mask, or of its box, in square pixels)")
    );
    assert_eq!(fault("\"iscrowd\": 0", "\"iscrowd\": 2"), format!("{first}`iscrowd` is 2 (it must be 0 or 1)"));
    assert_eq!(
        fault("{\"id\": 8, ", "{"),
        "file.json:4:9: `annotations[0]`: `id` is missing (it must be a whole number from 0)"
    );
    let long = format!("{{\"id\": \"{}\", ", "é".repeat(90));
    assert_eq!(
        fault("{\"id\": 8, ", &long),
        format!("file.json:4:9: `annotations[0]`: `id` is \"{}… (it must be a whole number from 0)", "é".repeat(39))
    );
    assert_eq!(
        fault("{\"id\": 7, \"name\": \"train\"}", "7"),
        "file.json:15:76: `categories[1]`: it is 7 (it must be an object)"
    );
    assert_eq!(
        fault("\"width\": 60", "\"width\": 0"),
        "file.json:13:9: `images[1]` (id 2): `width` is 0 (it must be 1 to 65535 pixels)"
    );
    let deep = fault("\"a.jpg\"", &format!("\"{}a.jpg\"", "d/".repeat(17)));
    assert!(
        deep.starts_with("file.json:13:9: `images[1]` (id 2): `file_name` is \"d/d/") && deep.ends_with("at most)"),
        "{deep}"
    );
    let near = FILE.replace("\"a.jpg\"", &format!("\"./{}a.jpg\"", "d/".repeat(16)));
    assert!(parsed(&near, Parts::Masks).is_ok());
    for path in ["/etc/passwd.jpg", "../a.jpg", "b/../../a.jpg", "", "a.gif", "a", ".a.jpg", "b/.c/a.jpg"] {
        assert_eq!(
            fault("\"a.jpg\"", &format!("\"{path}\"")),
            format!("file.json:13:9: `images[1]` (id 2): `file_name` is \"{path}\" (it must be {PICTURE})")
        );
    }
}

#[test]
fn invalid_outlines_are_named() {
    let first = "file.json:4:9: `annotations[0]` (id 8): ";
    let second = "file.json:6:9: `annotations[1]` (id 5): ";
    let third = "file.json:8:9: `annotations[2]` (id 9): ";
    let polygon = "numbers (a polygon must have an even number of them, at least 6)";
    assert_eq!(fault("[0, 0, 1, 0, 1, 1, 0, 1]", "[0, 0, 1, 0]"), format!("{first}`segmentation[1]` has 4 {polygon}"));
    assert_eq!(
        fault("[0, 0, 1, 0, 1, 1, 0, 1]", "[0, 0, 1, 0, 1, 1, 0]"),
        format!("{first}`segmentation[1]` has 7 {polygon}")
    );
    let outline = "(it must be a list of polygons, each a list of numbers, or an object with `size` and `counts`; boxes alone need none)";
    assert_eq!(
        fault("[[1, 2, 4.5, 2, 4.5, 4, 1, 4], [0, 0, 1, 0, 1, 1, 0, 1]]", "[]"),
        format!("{first}`segmentation` is [] {outline}")
    );
    assert_eq!(
        fault("[0, 8, 16]", "[0, -8]"),
        format!("{second}`segmentation` is {{\"size\":[4,6],\"counts\":[0,-8]}} {outline}")
    );
    assert_eq!(
        fault("[0, 8, 16]", "[0, 8, 17]"),
        format!("{second}`segmentation.counts`: the run lengths add up to 25 (a picture of 6 × 4 has 24 pixels)")
    );
    assert_eq!(
        fault("\"size\": [4, 6], ", "\"size\": [6, 4], "),
        format!("{second}`segmentation.size` is [6, 4] (the image is 4 high and 6 wide)")
    );
    assert_eq!(
        fault("07a0", "07a"),
        format!("{third}`segmentation.counts`: the compressed run lengths end within a number (the text is cut off)")
    );
}

#[test]
fn invalid_json_is_reported_with_its_place() {
    let whole = "(the file must be one JSON object)";
    assert_eq!(fault("\"area\": 8,", "\"area\": NaN,"), format!("file.json:6:83: expected value {whole}"));
    assert_eq!(fault("\n    \"categories\"", "\n    categories"), format!("file.json:15:5: expected value {whole}"));
    assert_eq!(
        fault("],\n    \"images\"", "]\n    \"images\""),
        format!("file.json:11:5: `,` or `}}` was expected {whole}")
    );
    let faulty = |text: &str| parsed(text, Parts::Masks).expect_err("no JSON").to_string();
    assert_eq!(faulty(""), format!("file.json:1:1: `{{` was expected {whole}"));
    assert_eq!(faulty(&FILE[..FILE.len() - 1]), format!("file.json:16:1: `,` or `}}` was expected {whole}"));
    assert_eq!(faulty("{\"a\":"), format!("file.json:1:6: the file ends too early {whole}"));
    assert_eq!(faulty(&format!("{FILE}\n7")), format!("file.json:17:1: more follows after the end {whole}"));
    assert_eq!(faulty("{7: 1}"), format!("file.json:1:2: a key was expected {whole}"));
}

/// More entries than are read at a time. Brackets and quotes in texts must not count.
#[test]
fn the_first_fault_in_the_file_is_reported() {
    let file = |image: &dyn Fn(u32) -> String| {
        let images: Vec<String> = (0..40_000).map(image).collect();
        let text = format!("{{\"annotations\": [], \"categories\": [], \"images\": [\n{}]}}", images.join(",\n"));
        parsed(&text, Parts::Boxes)
    };
    let good = |n: u32| format!(r#"{{"id": {n}, "width": 1, "height": 1, "file_name": "\"}}]{n}\\.png"}}"#);
    let read = file(&good).expect("valid");
    assert_eq!((read.images().len(), read.images()[39_999].id), (40_000, 39_999));
    assert_eq!(read.images()[20_000].file, Path::new("\"}]20000\\.png"));
    let with = |bad: &'static [(u32, &'static str)]| {
        let image =
            move |n| bad.iter().find(|(at, _)| *at == n).map_or_else(|| good(n), |(_, text)| (*text).to_owned());
        file(&image).expect_err("a fault").to_string()
    };
    assert_eq!(
        with(&[(9, "{"), (20_000, "5"), (30_000, "")]),
        "file.json:11:2: key must be a string (the file must be one JSON object)"
    );
    let number = "file.json:20002:1: `images[20000]`: it is 5 (it must be an object)";
    assert_eq!(with(&[(20_000, "5"), (20_001, "]"), (30_000, "{")]), number);
    assert_eq!(
        with(&[(30_000, ""), (39_000, "5")]),
        "file.json:30002:1: expected value (the file must be one JSON object)"
    );
    let again = "file.json:30002:1: `images[30000]` (id 3): its id is that of `images[3]` as well (give every id once)";
    assert_eq!(with(&[(30_000, r#"{"id": 3, "width": 1, "height": 1, "file_name": "a.png"}"#), (30_001, "5")]), again);
}

#[test]
fn the_three_lists_must_be_there_once() {
    assert_eq!(
        fault("\"images\": [", "\"pictures\": ["),
        "file.json:16:2: `images` is missing (it must be a list; is this COCO's file of instances?)"
    );
    assert_eq!(fault("\"info\"", "\"images\""), "file.json:2:15: `images` is not a list (it must be one, of objects)");
    assert_eq!(
        fault("\"info\": {\"year\": 2017, \"tags\": [1, {\"a\": \"]}\"}]}", "\"images\": []"),
        "file.json:11:5: `images` is there for the second time (join the lists)"
    );
    let empty = r#"{"images": [], "annotations": [], "categories": []}"#;
    let read = parsed(&format!("\u{feff}{empty}"), Parts::Masks).expect("valid");
    assert_eq!((read.images().len(), read.categories().len()), (0, 0));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let fault = Instances::read(Path::new("/nowhere/instances.json"), Parts::Boxes).expect_err("not there").to_string();
    assert_eq!(fault, "`/nowhere/instances.json` cannot be read (it must be COCO's JSON file of instances)");
}

proptest! {
    #[test]
    fn any_bytes_give_annotations_or_an_error(at in 0..FILE.len(), len in 0_usize..40, with in prop::collection::vec(any::<u8>(), 0..4)) {
        let mut bytes = FILE.as_bytes().to_vec();
        bytes.splice(at..(at + len).min(FILE.len()), with);
        for parts in [Parts::Boxes, Parts::Masks] {
            let _ = Instances::parse(Path::new("file.json"), &bytes, parts);
        }
    }
}
