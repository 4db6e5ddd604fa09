//! The records of TensorBoard's event files, for writing and reading.
//!
//! A file is a list of records. Each consists of its length, the masked CRC-32C of the length, the bytes, and the
//! masked CRC-32C of the bytes. The bytes are an `Event` message of `tensorflow/core/util/event.proto`.

use super::protobuf::Message;

/// Fields of `Event`.
pub(super) const WALL_TIME: u64 = 1;
pub(super) const STEP: u64 = 2;
pub(super) const FILE_VERSION: u64 = 3;
pub(super) const SUMMARY: u64 = 5;
pub(super) const SESSION_LOG: u64 = 7;

/// Encodes a message as a record.
pub(super) fn record(message: Message) -> Vec<u8> {
    let bytes = message.into_bytes();
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes();
    [length.as_slice(), &masked(&length), &bytes, &masked(&bytes)].concat()
}

/// The reason why there is no further record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The file ends with a record.
    Whole,
    /// The last record is incomplete: the file is still being written, or its writer died.
    Cut,
    /// The record at this byte has a wrong checksum.
    Damaged(usize),
}

/// Calls `take` with the bytes of each record. Returns the total size of the records with their frames, and the reason for the end.
pub(super) fn read_records<'a>(file: &'a [u8], mut take: impl FnMut(&'a [u8])) -> (usize, End) {
    let mut at = 0;
    loop {
        let rest = &file[at..];
        if rest.is_empty() {
            return (at, End::Whole);
        }
        let Some((length, after)) = rest.split_first_chunk::<8>() else { return (at, End::Cut) };
        let Some((sum, after)) = after.split_first_chunk::<4>() else { return (at, End::Cut) };
        if *sum != masked(length) {
            return (at, End::Damaged(at));
        }
        let size = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let Some((bytes, after)) = after.split_at_checked(size) else { return (at, End::Cut) };
        let Some((sum, after)) = after.split_first_chunk::<4>() else { return (at, End::Cut) };
        if *sum != masked(bytes) {
            return (at, End::Damaged(at));
        }
        take(bytes);
        at = file.len() - after.len();
    }
}

/// Returns the masked checksum of a record. The mask keeps checksums sound for data that contains checksums.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_a_fault_ends_the_reading() {
        let mut file = Vec::new();
        for number in [1, 2] {
            file.extend(record(Message::default().int(STEP, number)));
        }
        let read = |file: &[u8]| {
            let mut found = Vec::new();
            let end = read_records(file, |bytes| found.push(bytes.to_vec()));
            (found.len(), end)
        };
        let half = file.len() / 2;
        assert_eq!(read(&file), (2, (file.len(), End::Whole)));
        for cut in [half + 1, half + 9, half + 13, file.len() - 1] {
            assert_eq!(read(&file[..cut]), (1, (half, End::Cut)), "{cut}");
        }
        for at in [half, half + 8, half + 12, file.len() - 1] {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert_eq!(read(&damaged), (1, (half, End::Damaged(half))), "{at}");
        }
    }
}
