use super::*;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use std::io::Write;

fn image_file(count: u32, rows: u32, columns: u32, pixels: &[u8]) -> Vec<u8> {
    let words = [0x0803, count, rows, columns];
    words.iter().flat_map(|word: &u32| word.to_be_bytes()).chain(pixels.iter().copied()).collect()
}

fn label_file(count: u32, labels: &[u8]) -> Vec<u8> {
    [0x0801, count].iter().flat_map(|word: &u32| word.to_be_bytes()).chain(labels.iter().copied()).collect()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn parse(images: &[u8], labels: &[u8]) -> Result<Images, String> {
    join(Path::new("i"), images, Path::new("l"), labels).map_err(|fault| fault.to_string())
}

fn two() -> (Vec<u8>, Vec<u8>) {
    (image_file(2, 28, 28, &[7; 2 * PIXELS]), label_file(2, &[3, 9]))
}

#[test]
fn plain_and_packed_files_give_the_same() {
    let (images, labels) = two();
    let plain = parse(&images, &labels).expect("valid");
    assert_eq!(plain, Images { pixels: vec![7; 2 * PIXELS], labels: vec![3, 9] });
    assert_eq!(parse(&packed(&images), &packed(&labels)).expect("valid"), plain);
}

#[test]
fn each_fault_names_file_finding_and_remedy() {
    let (images, labels) = two();
    let cases: [(Vec<u8>, Vec<u8>, &str); 10] = [
        (vec![], labels.clone(), "`i` has 0 bytes (it must have a header)"),
        (labels.clone(), labels.clone(), "`i` has the magic number 0x00000801 (it must have 0x00000803)"),
        (images[..9].to_vec(), labels.clone(), "`i` has 9 bytes (it must have a header of 16)"),
        (image_file(2, 28, 29, &[]), labels.clone(), "`i` has images of 28 x 29 (it must have images of 28 x 28)"),
        (
            image_file(u32::MAX, 28, 28, &[]),
            labels.clone(),
            "`i` has a count of 4294967295 (it must have a count of 1 to 1000000)",
        ),
        (
            images[..images.len() - 1].to_vec(),
            labels.clone(),
            "`i` has 1567 bytes after its header (it must have 1568, as its header says)",
        ),
        (
            [images.as_slice(), &[0]].concat(),
            labels.clone(),
            "`i` has more than 1568 bytes after its header (it must have no more than its header says)",
        ),
        (images.clone(), label_file(2, &[3, 10]), "`l` has the label 10 at position 1 (it must have labels 0 to 9)"),
        (images.clone(), label_file(1, &[3]), "`l` has 1 labels (it must have 2, as many as `i` has images)"),
        (images.clone(), label_file(0, &[]), "`l` has a count of 0 (it must have a count of 1 to 1000000)"),
    ];
    for (images, labels, message) in cases {
        assert_eq!(parse(&images, &labels).expect_err(message), message);
    }
}

#[test]
fn a_damaged_archive_is_a_read_error_with_its_cause() {
    let (images, labels) = two();
    let mut archive = packed(&images);
    archive.truncate(archive.len() - 9);
    let fault = join(Path::new("i"), archive.as_slice(), Path::new("l"), labels.as_slice()).expect_err("truncated");
    assert!(matches!(fault, IdxError::Read { .. }), "{fault}");
}

#[test]
fn files_are_found_by_either_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let absent = read(dir.path(), Pair::Train).expect_err("empty directory").to_string();
    assert!(absent.contains("neither `train-images-idx3-ubyte` nor `train-images-idx3-ubyte.gz`"), "{absent}");
    let (images, labels) = two();
    std::fs::write(dir.path().join("train-images-idx3-ubyte.gz"), packed(&images)).expect("writable");
    std::fs::write(dir.path().join("train-labels-idx1-ubyte"), labels).expect("writable");
    assert_eq!(read(dir.path(), Pair::Train).expect("valid").labels, [3, 9]);
}

proptest! {
    #[test]
    fn any_bytes_never_panic(
        images in proptest::collection::vec(any::<u8>(), 0..2000),
        labels in proptest::collection::vec(any::<u8>(), 0..40),
        count in 0..4_u32,
        wrap: bool,
    ) {
        let _ = parse(&images, &labels);
        let (images, labels) = (image_file(count, 28, 28, &images), label_file(count, &labels));
        let _ = if wrap { parse(&packed(&images), &packed(&labels)) } else { parse(&images, &labels) };
    }

    #[test]
    fn a_flipped_bit_of_an_archive_never_panics(position in 0..60_usize, bit in 0..8_u32) {
        let (images, labels) = two();
        let mut archive = packed(&images);
        let position = position % archive.len();
        archive[position] ^= 1 << bit;
        let _ = parse(&archive, &labels);
    }
}
