//! Tests of the layout on disk, of the digest's coverage, and of damaged pictures.

use super::*;
use crate::data::coco::square::FRAME;
use crate::data::planes::size;
use image::{Rgb, RgbImage};
use std::error::Error;
use tempfile::TempDir;

const CATEGORIES: &str = r#""categories": [{"id": 3, "name": "cat"}, {"id": 8, "name": "dog"}]"#;

fn instances(images: &str, annotations: &str) -> String {
    format!(r#"{{"images": [{images}], "annotations": [{annotations}], {CATEGORIES}}}"#)
}

fn write(root: &TempDir, name: &str, content: &str) {
    let path = root.path().join(name);
    fs::create_dir_all(path.parent().expect("below the root")).expect("writable");
    fs::write(path, content).expect("writable");
}

fn save(root: &TempDir, name: &str, width: u32, height: u32) {
    let path = root.path().join(name);
    fs::create_dir_all(path.parent().expect("below the root")).expect("writable");
    RgbImage::from_pixel(width, height, Rgb([200, 100, 50])).save(path).expect("writable");
}

/// One picture of 32 × 16 for training, with an object, a crowd, and an object outside of it; one of 16 × 16 for
/// evaluation with an object outside of it.
fn small() -> TempDir {
    let root = tempfile::tempdir().expect("a directory");
    let train = r#"
        {"id": 1, "image_id": 4, "category_id": 8, "bbox": [-4, 4, 12, 8], "area": 40, "iscrowd": 0,
         "segmentation": [[0, 4, 8, 4, 8, 12, 0, 12]]},
        {"id": 2, "image_id": 4, "category_id": 3, "bbox": [16, 0, 16, 16], "area": 256, "iscrowd": 1,
         "segmentation": {"size": [16, 32], "counts": [256, 256]}},
        {"id": 3, "image_id": 4, "category_id": 3, "bbox": [40, 0, 4, 4], "area": 1, "segmentation": [[0, 0, 1, 0, 1, 1]]}"#;
    let eval = r#"{"id": 3, "image_id": 9, "category_id": 3, "bbox": [20, 0, 4, 4], "area": 16, "segmentation": [[0, 0, 1, 0, 1, 1]]}"#;
    let image = |id, file, width, height| {
        format!(r#"{{"id": {id}, "file_name": "{file}", "width": {width}, "height": {height}}}"#)
    };
    write(&root, "annotations/instances_train2017.json", &instances(&image(4, "a.png", 32, 16), train));
    write(&root, "annotations/instances_val2017.json", &instances(&image(9, "b.jpg", 16, 16), eval));
    write(&root, "annotations/captions_train2017.json", "{}");
    write(&root, "train2017.zip", "packed");
    save(&root, "train2017/a.png", 32, 16);
    save(&root, "val2017/b.jpg", 16, 16);
    root
}

fn open(root: &TempDir) -> Coco {
    Coco::open(root.path(), 16, Parts::Masks).expect("valid")
}

fn refused(root: &TempDir) -> String {
    let fault = Coco::open(root.path(), 16, Parts::Masks).expect_err("unusable").to_string();
    fault.replace(&root.path().display().to_string(), "ROOT")
}

/// The picture becomes 16 × 8 with 4 rows of the frame above and below. The box is clipped at the picture's left edge.
#[test]
fn a_training_picture_by_hand() {
    let root = small();
    let coco = open(&root);
    assert_eq!((coco.train_len(), coco.eval_len(), coco.left_out(), coco.categories().len()), (1, 1, 1, 2));
    let mut planes = vec![0; size(16)];
    let objects = coco.train(0, &mut planes).expect("decodable").expect("there");
    let found: Vec<_> =
        objects.iter().map(|object| (object.class, object.bounds.array(), object.area, object.crowd)).collect();
    assert_eq!(found, [(1, [0.0, 6.0, 4.0, 10.0], 10.0, false), (0, [8.0, 4.0, 16.0, 12.0], 64.0, true)]);
    let areas: Vec<_> =
        objects.iter().map(|object| object.mask.as_ref().map(|mask| (mask.area(), mask.bounds().array()))).collect();
    assert_eq!(areas, [Some((16, [0.0, 6.0, 4.0, 4.0])), Some((64, [8.0, 4.0, 8.0, 8.0]))]);
    for (plane, (frame, colour)) in planes.chunks(256).zip(FRAME.into_iter().zip([200, 100, 50])) {
        assert!(plane[..64].iter().chain(&plane[192..]).all(|byte| *byte == frame));
        assert!(plane[64..192].iter().all(|byte| *byte == colour));
    }
    assert!(coco.train(1, &mut planes).expect("nothing to fail").is_none());
}

#[test]
fn evaluation_has_all_objects_unchanged() {
    let root = small();
    let coco = open(&root);
    let mut planes = vec![0; size(16)];
    let objects = coco.eval(0, &mut planes).expect("decodable").expect("there");
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[0].bounds.array(), [20.0, 0.0, 24.0, 4.0]);
    let boxes = Coco::open(root.path(), 16, Parts::Boxes).expect("valid");
    assert!(boxes.eval(0, &mut planes).expect("decodable").expect("there")[0].mask.is_none());
}

#[test]
fn the_layout_is_checked() {
    let root = small();
    let path = |name: &str| root.path().join(name);
    write(&root, "annotations/instances_val2014.json", "{}");
    insta::assert_snapshot!(refused(&root), @"`ROOT/annotations/instances_val2014.json` and `ROOT/annotations/instances_val2017.json` are both there (there must be one file annotations/instances_val*.json: move the other one away)");
    fs::remove_file(path("annotations/instances_val2014.json")).expect("there");
    fs::create_dir(path("train2014")).expect("writable");
    insta::assert_snapshot!(refused(&root), @"`ROOT/train2014` and `ROOT/train2017` are both there (there must be one folder train* of pictures: move the other one away)");
    fs::remove_dir(path("train2014")).expect("there");
    fs::rename(path("val2017"), path("test2017")).expect("there");
    insta::assert_snapshot!(refused(&root), @"`ROOT` has no folder val* of pictures (it must be laid out as COCO is)");
    fs::rename(path("test2017"), path("val2017")).expect("there");
    write(&root, "annotations/instances_val2017.json", &instances("", ""));
    insta::assert_snapshot!(refused(&root), @"`ROOT/annotations/instances_val2017.json` has no images in `images` (it must have at least one)");
    fs::remove_dir_all(path("annotations")).expect("there");
    insta::assert_snapshot!(refused(&root), @"`ROOT` has no file annotations/instances_train*.json (it must be laid out as COCO is)");
}

#[test]
fn both_halves_have_the_same_categories() {
    let root = small();
    let file = root.path().join("annotations/instances_val2017.json");
    let text = fs::read_to_string(&file).expect("there");
    write(&root, "annotations/instances_val2017.json", &text.replace("\"dog\"", "\"cow\""));
    insta::assert_snapshot!(refused(&root), @"`ROOT/annotations/instances_val2017.json` has not the categories of `ROOT/annotations/instances_train2017.json`: 8 is `cow`, not 8 is `dog` (both must have the same ids and names)");
    write(&root, "annotations/instances_val2017.json", &text.replace(r#", {"id": 8, "name": "dog"}"#, ""));
    insta::assert_snapshot!(refused(&root), @"`ROOT/annotations/instances_val2017.json` has not the categories of `ROOT/annotations/instances_train2017.json`: 1 of 2 (both must have the same ids and names)");
}

#[test]
fn missing_damaged_and_replaced_pictures_are_named() {
    let root = small();
    let picture = root.path().join("train2017/a.png");
    save(&root, "train2017/a.png", 32, 17);
    insta::assert_snapshot!(refused(&root), @"image 4 is 32 × 16 pixels in the annotations, but its file `ROOT/train2017/a.png` has 32 × 17 (pictures and annotations must be of one set)");
    fs::write(&picture, "no picture").expect("writable");
    insta::assert_snapshot!(refused(&root), @"`ROOT/train2017/a.png` cannot be decoded (it must be a whole JPEG or PNG file)");
    fs::remove_file(&picture).expect("there");
    insta::assert_snapshot!(refused(&root), @"image 4 cannot be read: `ROOT/train2017/a.png` (all images of the annotations must be there)");
    // A picture that is replaced after it was checked gives an error when it is needed.
    save(&root, "train2017/a.png", 32, 16);
    let coco = open(&root);
    let mut planes = vec![0; size(16)];
    save(&root, "train2017/a.png", 16, 32);
    let fault = coco.train(0, &mut planes).expect_err("another picture");
    assert!(matches!(fault, CocoError::PictureSize { id: 4, .. }));
    fs::write(&picture, &fs::read(&picture).expect("there")[..40]).expect("writable");
    let fault = coco.train(0, &mut planes).expect_err("cut off");
    assert!(fault.to_string().contains("a.png` cannot be decoded") && fault.source().is_some());
}

#[test]
fn the_digest_covers_every_file_that_is_read_and_no_other() {
    let root = small();
    let before = open(&root).digest();
    write(&root, "annotations/captions_train2017.json", "[]");
    write(&root, "train2017/more.png", "other");
    assert_eq!(open(&root).digest(), before);
    let mut digests = vec![before];
    for name in [
        "annotations/instances_train2017.json",
        "annotations/instances_val2017.json",
        "train2017/a.png",
        "val2017/b.jpg",
    ] {
        let path = root.path().join(name);
        let bytes = fs::read(&path).expect("there");
        // Decoders of JSON and of pictures ignore a trailing line end.
        fs::write(&path, [&bytes[..], b"\n"].concat()).expect("writable");
        let changed = open(&root).digest();
        assert!(!digests.contains(&changed), "{name}");
        digests.push(changed);
        fs::write(&path, bytes).expect("writable");
    }
    assert_eq!(open(&root).digest(), before);
}
