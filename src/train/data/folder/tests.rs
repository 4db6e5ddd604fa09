//! Tests of folders of pictures: layout, order, decoding, errors, digest.

use super::*;
use crate::rng::Stream;
use image::{DynamicImage, ImageBuffer, Luma, LumaA, Rgb, Rgba};
use tempfile::TempDir;

const SIDE: usize = 16;

fn root() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

/// Saves a picture below a root, making its folders.
fn save(root: &TempDir, name: &str, picture: impl Into<DynamicImage>) {
    let path = root.path().join(name);
    fs::create_dir_all(path.parent().expect("below the root")).expect("writable");
    picture.into().save(path).expect("writable");
}

fn write(root: &TempDir, name: &str, bytes: &[u8]) {
    let path = root.path().join(name);
    fs::create_dir_all(path.parent().expect("below the root")).expect("writable");
    fs::write(path, bytes).expect("writable");
}

fn even(width: u32, height: u32, colour: [u8; 3]) -> RgbImage {
    RgbImage::from_pixel(width, height, Rgb(colour))
}

/// Two classes with one picture each in both halves.
fn small() -> TempDir {
    let root = root();
    for part in ["train", "val"] {
        save(&root, &format!("{part}/cat/1.png"), even(30, 20, [200, 100, 50]));
        save(&root, &format!("{part}/dog/1.jpg"), even(20, 30, [20, 120, 220]));
    }
    root
}

fn names(root: &TempDir, entries: &[Entry]) -> Vec<String> {
    let name = |entry: &Entry| entry.path.strip_prefix(root.path()).expect("below the root").display().to_string();
    entries.iter().map(name).collect()
}

/// Returns the message of an error with the root's path replaced.
fn message(root: &TempDir, fault: &FolderError) -> String {
    fault.to_string().replace(&root.path().display().to_string(), "ROOT")
}

fn refused(root: &TempDir) -> String {
    message(root, &Folder::open(root.path(), SIDE).expect_err("unusable"))
}

/// Returns the middle of an evaluation picture as planes.
fn middle(folder: &Folder, index: usize) -> Vec<u8> {
    let mut planes = vec![0; size(folder.side)];
    folder.eval(index, &mut planes).expect("decodable").expect("there");
    planes
}

/// Returns the colour of a picture that must be even, within JPEG's losses.
fn colour_of(planes: &[u8], tolerance: u8) -> [u8; 3] {
    let plane = planes.len() / 3;
    std::array::from_fn(|channel| {
        let values = &planes[channel * plane..(channel + 1) * plane];
        assert!(values.iter().all(|value| value.abs_diff(values[0]) <= tolerance), "channel {channel}: {values:?}");
        values[0]
    })
}

#[test]
fn files_and_classes_are_sorted_and_others_left_out() {
    let root = small();
    let picture = || even(16, 16, [1, 2, 3]);
    save(&root, "train/Zebra/b.PNG", picture());
    save(&root, "train/Zebra/a/2.jpeg", picture());
    save(&root, "train/Zebra/a-b/1.png", picture());
    save(&root, "train/Zebra/a/x/3.png", picture());
    save(&root, "train/Zebra/a.png", picture());
    save(&root, "val/Zebra/9.png", picture());
    for name in ["train/.hidden/1.png", "train/cat/.1.png", "train/cat/notes.txt", "train/list", "val/dog/Thumbs.db"] {
        write(&root, name, b"anything");
    }
    let folder = Folder::open(root.path(), SIDE).expect("valid");
    assert_eq!(folder.classes(), ["Zebra", "cat", "dog"]);
    let zebras = ["a.png", "b.PNG", "a/2.jpeg", "a-b/1.png", "a/x/3.png"].map(|name| format!("train/Zebra/{name}"));
    let others = ["train/cat/1.png", "train/dog/1.jpg"].map(str::to_owned);
    assert_eq!(names(&root, &folder.train), [&zebras[..], &others].concat());
    assert_eq!(folder.train.iter().map(|entry| entry.class).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 1, 2]);
    assert_eq!((folder.train_len(), folder.eval_len(), folder.ignored()), (7, 3, 5));
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_one_without_end_or_target_is_named() {
    use std::os::unix::fs::symlink;
    let root = small();
    symlink(root.path().join("val/cat/1.png"), root.path().join("train/cat/0.png")).expect("writable");
    symlink(root.path().join("val/dog"), root.path().join("train/cow")).expect("writable");
    symlink(root.path().join("val/dog"), root.path().join("val/cow")).expect("writable");
    let folder = Folder::open(root.path(), SIDE).expect("valid");
    assert_eq!(
        names(&root, &folder.train),
        ["cat/0.png", "cat/1.png", "cow/1.jpg", "dog/1.jpg"].map(|n| format!("train/{n}"))
    );

    symlink(root.path().join("gone.png"), root.path().join("train/cat/2.png")).expect("writable");
    insta::assert_snapshot!(refused(&root), @"`ROOT/train/cat/2.png` cannot be read");
    fs::remove_file(root.path().join("train/cat/2.png")).expect("there");
    symlink(root.path().join("train/cat"), root.path().join("train/cat/up")).expect("writable");
    assert!(
        refused(&root).ends_with("lies more than 14 folders below its class (is there a link to a folder above it?)")
    );
}

#[test]
fn every_kind_of_pixel_becomes_eight_bits_of_red_green_and_blue() {
    let root = small();
    save(&root, "val/cat/2.png", ImageBuffer::from_pixel(20, 20, Luma([77_u8])));
    save(&root, "val/cat/3.png", ImageBuffer::from_pixel(20, 20, LumaA([77_u8, 9])));
    save(&root, "val/cat/4.png", ImageBuffer::from_pixel(20, 20, Rgba([10_u8, 20, 30, 40])));
    save(&root, "val/cat/5.png", ImageBuffer::from_pixel(20, 20, Rgb([257_u16 * 9, 257 * 8, 257 * 7])));
    save(&root, "val/cat/6.png", ImageBuffer::from_pixel(20, 20, Luma([257_u16 * 200])));
    save(&root, "val/cat/7.jpg", ImageBuffer::from_pixel(20, 20, Luma([77_u8])));
    write(&root, "val/cat/8.png", PALETTE);
    let folder = Folder::open(root.path(), SIDE).expect("valid");
    let found: Vec<[u8; 3]> = (0..8).map(|index| colour_of(&middle(&folder, index), 0)).collect();
    let grey = |value| [value; 3];
    let expected = [[200, 100, 50], grey(77), grey(77), [10, 20, 30], [9, 8, 7], grey(200), grey(77), [250, 128, 5]];
    assert_eq!(found, expected);
    let [red, green, blue] = colour_of(&middle(&folder, 8), 3);
    assert!(red.abs_diff(20) < 4 && green.abs_diff(120) < 4 && blue.abs_diff(220) < 4, "{red} {green} {blue}");
}

/// A PNG of 1 × 1 pixel that selects the second of two palette colours, written by hand from the PNG specification.
const PALETTE: &[u8] = b"\x89PNG\x0d\x0a\x1a\x0a\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x01\x03\x00\x00\x00%\xdbV\xca\x00\x00\x00\x06PLTE\x01\x02\x03\xfa\x80\x05\xf5\xf4\x0c&\x00\x00\x00\x0aIDATx\x9cch\x00\x00\x00\x82\x00\x81w\xcdr\xb6\x00\x00\x00\x00IEND\xaeB`\x82";

#[test]
fn evaluation_takes_the_middle_of_a_picture_of_256_for_224() {
    let root = small();
    // Red grows to the right by 4 and green down by 4 for each pixel.
    let ramp = RgbImage::from_fn(60, 48, |x, y| Rgb([4 * x, 4 * y, 9].map(|n| u8::try_from(n).expect("a byte"))));
    save(&root, "val/cat/1.png", ramp);
    let folder = Folder::open(root.path(), 21).expect("valid");
    let planes = middle(&folder, 0);
    // 60 × 48 becomes 30 × 24. Its middle of 21 × 21 begins at 4 and 2 (4.5 and 1.5, rounded to even). A pixel covers
    // two source pixels and its centre lies between them.
    let at = |channel: usize, row: usize, column: usize| planes[(channel * 21 + row) * 21 + column];
    assert_eq!([at(0, 0, 0), at(1, 0, 0), at(2, 0, 0)], [34, 18, 9]);
    assert_eq!([at(0, 20, 20), at(1, 20, 20), at(2, 20, 20)], [194, 178, 9]);
}

#[test]
fn training_takes_another_part_each_time_and_mirrors_half_of_them() {
    let root = small();
    let ramp = RgbImage::from_fn(60, 48, |x, y| Rgb([4 * x, 4 * y, 9].map(|n| u8::try_from(n).expect("a byte"))));
    save(&root, "train/cat/1.png", ramp);
    let folder = Folder::open(root.path(), SIDE).expect("valid");
    let mut planes = vec![0; size(SIDE)];
    let mut mirrored = 0;
    let mut parts = std::collections::BTreeSet::new();
    for index in 0..200 {
        folder.train(0, &mut Rng::new(3, Stream::Augment, index), &mut planes).expect("decodable").expect("there");
        mirrored += u32::from(planes[0] > planes[SIDE - 1]);
        parts.insert(planes.clone());
        assert!(planes[SIDE * SIDE] < planes[2 * SIDE * SIDE - 1], "never upside down");
    }
    // 100 expected with a standard deviation of 7; 5 of them are allowed.
    assert!((65..135).contains(&mirrored), "{mirrored} mirrored");
    assert!(parts.len() > 190, "{} different parts", parts.len());
}

#[test]
fn the_format_is_detected_by_the_content() {
    let root = small();
    save(&root, "val/cat/2.png", even(20, 20, [5, 6, 7]));
    fs::rename(root.path().join("val/cat/2.png"), root.path().join("val/cat/2.JPEG")).expect("there");
    let folder = Folder::open(root.path(), SIDE).expect("valid");
    assert_eq!(colour_of(&middle(&folder, 1), 0), [5, 6, 7]);
}

#[test]
fn a_file_that_cannot_be_decoded_is_named() {
    let root = small();
    let whole = fs::read(root.path().join("val/cat/1.png")).expect("there");
    write(&root, "val/cat/2.png", &whole[..whole.len() / 2]);
    write(&root, "val/cat/3.jpg", b"no picture");
    write(&root, "val/cat/4.jpg", b"");
    write(&root, "val/cat/5.png", b"GIF89a\x01\x00\x01\x00\x00\x00\x00;");
    let folder = Folder::open(root.path(), SIDE).expect("the content is not looked at");
    let fault = |index| {
        let fault = folder.eval(index, &mut vec![0; size(SIDE)]).expect_err("undecodable");
        assert!(std::error::Error::source(&fault).is_some());
        message(&root, &fault)
    };
    insta::assert_snapshot!(fault(1), @"`ROOT/val/cat/2.png` cannot be decoded (it must be a whole JPEG or PNG file)");
    for (index, name) in [(2, "3.jpg"), (3, "4.jpg"), (4, "5.png")] {
        assert!(fault(index).starts_with(&format!("`ROOT/val/cat/{name}` cannot be decoded")), "{}", fault(index));
    }
}

#[test]
fn a_jpeg_is_whole_up_to_its_last_marker() {
    let root = small();
    let byte = |n: u32| u8::try_from(n % 251).expect("a byte");
    save(&root, "val/dog/1.jpg", RgbImage::from_fn(64, 64, |x, y| Rgb([byte(x * y), byte(x * 7), byte(y * 5)])));
    let whole = fs::read(root.path().join("val/dog/1.jpg")).expect("there");
    let middle_of = |bytes: &[u8]| {
        write(&root, "val/dog/1.jpg", bytes);
        Folder::open(root.path(), SIDE).expect("the content is not looked at").eval(1, &mut vec![0; size(SIDE)])
    };
    for len in [whole.len() / 2, whole.len() - 40, whole.len() - 1] {
        let fault = middle_of(&whole[..len]).expect_err("cut off");
        assert!(message(&root, &fault).starts_with("`ROOT/val/dog/1.jpg` is cut off"), "{fault}");
    }
    // Cameras and programs append all sorts of data behind the picture.
    assert_eq!(middle_of(&[&whole[..], b"\0\0left over"].concat()).expect("whole"), Some(1));
    // The appended data may look like the beginning of a scan.
    assert_eq!(middle_of(&[&whole[..], b"\xff\xda\0\x08more"].concat()).expect("whole"), Some(1));
    // A thumbnail in the header has an end marker of its own.
    let length = u16::try_from(whole.len() + 2).expect("small").to_be_bytes();
    let nested = [&whole[..2], &[0xff, 0xe1], &length, &whole[..], &whole[2..]].concat();
    assert_eq!(middle_of(&nested).expect("whole"), Some(1));
    assert!(middle_of(&nested[..nested.len() - 2]).is_err());
    assert!(middle_of(&nested[..whole.len()]).is_err());
}

#[test]
fn missing_parts_are_reported() {
    let root = root();
    insta::assert_snapshot!(refused(&root), @"`ROOT` has no folder `train` (it must have `train/CLASS/FILE` and `val/CLASS/FILE` with JPEG or PNG files)");
    save(&root, "train/cat/1.png", even(16, 16, [0; 3]));
    insta::assert_snapshot!(refused(&root), @"`ROOT` has no folder `val` (it must have `train/CLASS/FILE` and `val/CLASS/FILE` with JPEG or PNG files)");
    fs::create_dir_all(root.path().join("val")).expect("writable");
    insta::assert_snapshot!(refused(&root), @"`ROOT/val` has no folders (it must have one for each class)");
    fs::create_dir_all(root.path().join("val/cat")).expect("writable");
    insta::assert_snapshot!(refused(&root), @"`ROOT/val/cat` has no file that ends in .jpg, .jpeg or .png (remove the class or fill it)");
    save(&root, "val/cat/1.png", even(16, 16, [0; 3]));
    save(&root, "val/cow/1.png", even(16, 16, [0; 3]));
    insta::assert_snapshot!(refused(&root), @"the class `cow` is in `ROOT/val` but not in `ROOT/train` (both must have the same classes)");
    fs::remove_dir_all(root.path().join("val/cow")).expect("there");
    save(&root, "train/dog/1.png", even(16, 16, [0; 3]));
    assert!(refused(&root).starts_with("the class `dog` is in `ROOT/train` but not in `ROOT/val`"));
}

#[test]
fn the_digest_covers_names_and_bytes_and_nothing_else() {
    let first = small();
    let digest = |root: &TempDir| Folder::open(root.path(), SIDE).expect("valid").digest();
    let before = digest(&first);
    write(&first, "train/cat/notes.txt", b"anything");
    assert_eq!(digest(&first), before);
    assert_eq!(digest(&small()), before);
    fs::rename(first.path().join("val/dog/1.jpg"), first.path().join("val/dog/2.jpg")).expect("there");
    assert_ne!(digest(&first), before);
    let second = small();
    save(&second, "train/cat/1.png", even(30, 20, [200, 100, 51]));
    assert_ne!(digest(&second), before);
}

#[test]
fn large_files_are_hashed_as_a_whole() {
    let root = small();
    let path = root.path().join("large");
    let bytes: Vec<u8> = (0..200_000_u32).map(|at| u8::try_from(at % 253).expect("a byte")).collect();
    fs::write(&path, &bytes).expect("writable");
    assert_eq!(hash(&path).expect("readable"), Digest::of(&bytes));
}
