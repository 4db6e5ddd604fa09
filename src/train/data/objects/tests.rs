//! Tests of batches: dependence on seed, epoch and index, mirroring with objects, errors.

use super::*;
use crate::data::planes::size;
use crate::detection::boxes::Xyxy;
use image::{Rgb, RgbImage};
use rayon::ThreadPoolBuilder;
use std::fs;
use tempfile::TempDir;

const SIDE: usize = 64;

fn scenes() -> ObjectPictures {
    ObjectPictures::scenes(1, SIDE, 10, 12, 6).expect("valid")
}

/// A folder in COCO's layout with six pictures a half, each with an object in its upper left quarter.
fn coco() -> (TempDir, ObjectPictures) {
    let root = tempfile::tempdir().expect("a directory");
    fs::create_dir(root.path().join("annotations")).expect("writable");
    for half in ["train", "val"] {
        let folder = root.path().join(format!("{half}2017"));
        fs::create_dir(&folder).expect("writable");
        let (mut images, mut annotations) = (Vec::new(), Vec::new());
        for id in 0..6_u8 {
            let (width, height) = (40 + 4 * u32::from(id), 30);
            let ramp =
                |x: u32, y: u32| Rgb([x * 4, y * 5, x + y + u32::from(id)].map(|n| u8::try_from(n).expect("a byte")));
            RgbImage::from_fn(width, height, ramp).save(folder.join(format!("{id}.png"))).expect("writable");
            images.push(format!(r#"{{"id": {id}, "file_name": "{id}.png", "width": {width}, "height": {height}}}"#));
            annotations.push(format!(
                r#"{{"id": {id}, "image_id": {id}, "category_id": 2, "bbox": [4, 5, 10, 8], "area": 80, "segmentation": [[4, 5, 14, 5, 14, 13, 4, 13]]}}"#
            ));
        }
        let [images, annotations] = [images, annotations].map(|list| list.join(","));
        let categories = r#"[{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]"#;
        let text = format!(r#"{{"images": [{images}], "annotations": [{annotations}], "categories": {categories}}}"#);
        fs::write(root.path().join(format!("annotations/instances_{half}2017.json")), text).expect("writable");
    }
    let pictures = ObjectPictures::coco(root.path(), SIDE, Parts::Masks).expect("valid");
    (root, pictures)
}

fn all_sources() -> [(Option<TempDir>, ObjectPictures); 2] {
    let (root, coco) = coco();
    [(None, scenes()), (Some(root), coco)]
}

#[test]
fn every_source_reports_its_sizes_and_classes() {
    let sizes = |pictures: &ObjectPictures| {
        (pictures.side(), pictures.classes(), pictures.train_len(), pictures.eval_len(), pictures.facts())
    };
    let [(_, scenes), (_root, coco)] = all_sources();
    assert_eq!(sizes(&scenes), (SIDE, 10, 12, 6, vec![]));
    assert_eq!(sizes(&coco), (SIDE, 2, 6, 6, vec![("data_pictures", 12_i64.into())]));
    assert_ne!(scenes.digest(), coco.digest());
}

#[test]
fn an_evaluation_without_an_object_reports_why_it_has_no_accuracy() {
    let (root, _) = coco();
    let file = root.path().join("annotations/instances_val2017.json");
    let text = fs::read_to_string(&file).expect("written");
    let facts = |text: String| {
        fs::write(&file, text).expect("writable");
        ObjectPictures::coco(root.path(), SIDE, Parts::Boxes).expect("valid").facts()
    };
    let missing = [("accuracy_missing", "no picture of the evaluation has an object to be found".into())];
    assert_eq!(facts(text.replace("\"area\"", "\"iscrowd\": 1, \"area\""))[1..], missing);
    let (start, end) =
        (text.find("[{\"id\": 0, \"image_id\"").expect("there"), text.find("], \"categories\"").expect("there"));
    assert_eq!(facts(format!("{}[{}", &text[..start], &text[end..]))[1..], missing);
}

#[test]
fn a_batch_is_the_same_on_any_number_of_threads() {
    for (_root, pictures) in all_sources() {
        let make = |threads| {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            pool.install(|| {
                let train = pictures.train_batch(7, 2, &[3, 0, 4, 3]).expect("there");
                (train, pictures.eval_batch(&[5, 1]).expect("there"))
            })
        };
        assert_eq!(make(1), make(4));
    }
}

#[test]
fn a_row_depends_on_seed_epoch_and_index_and_not_on_its_batch() {
    let size = size(SIDE);
    for (_root, pictures) in all_sources() {
        let batch = pictures.train_batch(7, 2, &[3, 0, 4, 3]).expect("there");
        assert_eq!((batch.rows, batch.side, batch.pixels.len(), batch.objects.len()), (4, SIDE, 4 * size, 4));
        let alone = pictures.train_batch(7, 2, &[4]).expect("there");
        assert_eq!((&batch.pixels[2 * size..3 * size], &batch.objects[2]), (&*alone.pixels, &alone.objects[0]));
        assert_eq!((&batch.pixels[..size], &batch.objects[0]), (&batch.pixels[3 * size..], &batch.objects[3]));
        // All ten are equal with a probability of 1 in 512.
        let changes = |change: &dyn Fn(u64) -> ObjectBatch| (0..10).any(|n| change(n) != change(0));
        assert!(changes(&|epoch| pictures.train_batch(7, epoch, &[4]).expect("there")));
        assert!(changes(&|seed| pictures.train_batch(seed, 1, &[4]).expect("there")));
    }
}

/// Half of the rows are mirrored relative to another epoch: pixels, boxes and masks.
#[test]
fn training_pictures_are_mirrored_with_their_objects() {
    let width = single(real_len(SIDE));
    for (_root, pictures) in all_sources() {
        let first = pictures.train_batch(3, 0, &[2]).expect("there");
        let mut mirrors = 0;
        for epoch in 1..40 {
            let batch = pictures.train_batch(3, epoch, &[2]).expect("there");
            if batch == first {
                continue;
            }
            mirrors += 1;
            let mut planes = first.pixels.clone();
            mirror(&mut planes, SIDE);
            assert_eq!(batch.pixels, planes);
            assert_eq!(batch.objects[0].len(), first.objects[0].len());
            for (object, plain) in batch.objects[0].iter().zip(&first.objects[0]) {
                let Xyxy { left, top, right, bottom } = plain.bounds;
                assert_eq!(object.bounds, Xyxy::new([width - right, top, width - left, bottom]));
                assert_eq!((object.class, object.area, object.crowd), (plain.class, plain.area, plain.crowd));
                let mut bitmap = plain.mask.as_ref().expect("masks").to_bitmap();
                bitmap.chunks_exact_mut(SIDE).for_each(<[u8]>::reverse);
                assert_eq!(object.mask.as_ref().expect("masks").to_bitmap(), bitmap);
            }
        }
        // 19.5 expected, with a standard deviation of 3; 5 of them are allowed.
        assert!((5..=34).contains(&mirrors), "{mirrors} of 39");
    }
}

#[test]
fn objects_of_scenes_are_their_masks() {
    let batch = scenes().eval_batch(&[0, 1, 2, 3, 4, 5]).expect("there");
    for object in batch.objects.iter().flatten() {
        let mask = object.mask.as_ref().expect("masks");
        assert_eq!((object.bounds, object.area), (mask.bounds().into(), f64::from(mask.area())));
        assert_eq!((usize::from(mask.size().width), usize::from(mask.size().height)), (SIDE, SIDE));
        assert!(!object.crowd && object.class < 10);
    }
}

#[test]
fn requests_out_of_range_are_errors() {
    let pictures = scenes();
    let fault = |found: Result<ObjectBatch, ObjectError>| found.expect_err("too large").to_string();
    insta::assert_snapshot!(fault(pictures.train_batch(0, 0, &[11, 12, 13])), @"there is no training picture 12 (there are 12, from 0)");
    insta::assert_snapshot!(fault(pictures.eval_batch(&[6])), @"there is no evaluation picture 6 (there are 6, from 0)");
    for (_root, pictures) in all_sources() {
        assert!(pictures.train_batch(0, 0, &[pictures.train_len()]).is_err());
        assert!(pictures.eval_batch(&[pictures.eval_len()]).is_err());
    }
    let empty = pictures.eval_batch(&[]).expect("nothing to fail");
    assert_eq!(empty, ObjectBatch { rows: 0, side: SIDE, pixels: vec![], objects: vec![] });
    let side = |side| ObjectPictures::coco(Path::new("/nowhere"), side, Parts::Boxes).expect_err("a fault").to_string();
    insta::assert_snapshot!(side(1025), @"the side of pictures is 1025 (it must be 16 to 1024)");
    insta::assert_snapshot!(side(64), @"`/nowhere` has no file annotations/instances_train*.json (it must be laid out as COCO is)");
    let scenes = ObjectPictures::scenes(0, 63, 10, 1, 1).expect_err("too small").to_string();
    insta::assert_snapshot!(scenes, @"the side of scenes is 63 (it must be 64 to 1024)");
}
