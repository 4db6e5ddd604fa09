//! Files of delimited text with a header: their rows, the places of what is wrong in them, and the digest of their bytes.
//!
//! Knows nothing of what the columns mean.

use super::moment::unix_ns;
use crate::manifest::ManifestError;
use crate::record::{Digest, DigestWriter, Table, Value};
use csv::ByteRecord;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// More faults than these are counted and not shown.
const SHOWN_FAULTS: usize = 10;

/// Foreign files that cannot be taken in.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file has no such column.
    #[error("`{}` has no column `{column}` (there are: {})", path.display(), listed(columns))]
    Column {
        /// The file.
        path: PathBuf,
        /// What is missing.
        column: String,
        /// What there is.
        columns: Vec<String>,
    },
    /// Rows are wrong.
    #[error("{}{}", lines(faults), more(*count))]
    Rows {
        /// The first of them.
        faults: Vec<RowFault>,
        /// How many there are.
        count: usize,
    },
    /// The map of a table is wrong.
    #[error(transparent)]
    Map(ManifestError),
    /// The file has nothing to take in.
    #[error("`{}` has no rows", .0.display())]
    Empty(PathBuf),
    /// What was asked of the files does not fit them.
    #[error("{0}")]
    Refused(String),
}

/// What is wrong with a row, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFault {
    /// The file.
    pub path: PathBuf,
    /// The line on which the row begins, from 1.
    pub line: u64,
    /// What is wrong, and what is expected.
    pub message: String,
}

impl fmt::Display for RowFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.message)
    }
}

fn lines(faults: &[RowFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn listed(columns: &[String]) -> String {
    columns.iter().map(|column| shown(column.as_bytes())).collect::<Vec<_>>().join(", ")
}

fn more(count: usize) -> String {
    let hidden = count.saturating_sub(SHOWN_FAULTS);
    if hidden == 0 { String::new() } else { format!("\nand {hidden} more") }
}

/// Faults while they are found: the first few, and how many there are.
#[derive(Default)]
pub(super) struct Faults {
    first: Vec<RowFault>,
    pub(super) count: usize,
}

impl Faults {
    pub(super) fn add(&mut self, fault: RowFault) {
        self.count += 1;
        if self.first.len() < SHOWN_FAULTS {
            self.first.push(fault);
        }
    }

    /// The first fault, if there is any.
    pub(super) fn first(&self) -> Option<&RowFault> {
        self.first.first()
    }

    /// Nothing if there are no faults.
    pub(super) fn check(self) -> Result<(), ImportError> {
        if self.count == 0 { Ok(()) } else { Err(ImportError::Rows { faults: self.first, count: self.count }) }
    }
}

/// Where rows came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file, as it was named.
    pub path: PathBuf,
    /// The hash of its bytes.
    pub digest: Digest,
    /// How many bytes it has.
    pub bytes: u64,
    /// How many rows it has, without the header.
    pub rows: u64,
}

impl Source {
    /// What an attempt's record says of it. The folder is left out: the same file is the same wherever it lies.
    pub(super) fn to_table(&self) -> Table {
        Table::from([
            ("file".to_owned(), file_name(&self.path).into()),
            ("digest".to_owned(), self.digest.to_string().into()),
            ("bytes".to_owned(), self.bytes.into()),
            ("rows".to_owned(), self.rows.into()),
        ])
    }

    /// The same as a value.
    pub(super) fn to_value(&self) -> Value {
        self.to_table().into()
    }
}

/// The name of a file without its folder.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Hashes what is read.
struct Hashed {
    file: File,
    digest: DigestWriter,
    bytes: u64,
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read(buffer)?;
        self.digest.write(&buffer[..len]);
        self.bytes += u64::try_from(len).unwrap_or(0);
        Ok(len)
    }
}

/// The rows of a file, one after the other.
pub(super) struct Rows {
    path: PathBuf,
    reader: csv::Reader<Hashed>,
    heads: Vec<String>,
    rows: u64,
}

impl Rows {
    /// Opens a file and reads its header.
    pub(super) fn open(path: &Path, delimiter: u8) -> Result<Self, ImportError> {
        let unreadable = |source| ImportError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let hashed = Hashed { file, digest: DigestWriter::new(), bytes: 0 };
        let mut reader =
            csv::ReaderBuilder::new().delimiter(delimiter).buffer_capacity(1 << 18).flexible(true).from_reader(hashed);
        let heads = match reader.byte_headers() {
            Ok(heads) => heads.iter().map(|head| String::from_utf8_lossy(head).trim().to_owned()).collect(),
            Err(error) => return Err(unreadable(cause(error))),
        };
        Ok(Self { path: path.to_owned(), reader, heads, rows: 0 })
    }

    /// The columns' names.
    pub(super) fn heads(&self) -> &[String] {
        &self.heads
    }

    /// The place of a column, whatever its name's letters and signs: `gpuSerial` is `gpu_serial`.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let plain = |name: &str| name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        let wanted: String = plain(name);
        self.heads.iter().position(|head| head == name).or_else(|| {
            self.heads.iter().position(|head| {
                let head: String = plain(head);
                head == wanted
            })
        })
    }

    /// The same of a column that must be there.
    pub(super) fn column(&self, name: &str) -> Result<usize, ImportError> {
        self.find(name).ok_or_else(|| ImportError::Column {
            path: self.path.clone(),
            column: name.to_owned(),
            columns: self.heads.clone(),
        })
    }

    /// Reads the next row. False at the end.
    pub(super) fn next(&mut self, record: &mut ByteRecord) -> Result<bool, ImportError> {
        let unreadable = |error| ImportError::Unreadable { path: self.path.clone(), source: cause(error) };
        let found = self.reader.read_byte_record(record).map_err(unreadable)?;
        self.rows += u64::from(found);
        Ok(found)
    }

    /// A fault of the row that was read last.
    pub(super) fn fault(&self, record: &ByteRecord, message: impl Into<String>) -> RowFault {
        let line = record.position().map_or(0, csv::Position::line);
        RowFault { path: self.path.clone(), line, message: message.into() }
    }

    /// Checks that a row has as many fields as there are columns.
    pub(super) fn whole(&self, record: &ByteRecord) -> Result<(), RowFault> {
        let (found, expected) = (record.len(), self.heads.len());
        if found == expected {
            Ok(())
        } else {
            Err(self.fault(record, format!("it has {found} fields, but the header has {expected}")))
        }
    }

    /// The moment in a field of a row that has as many fields as there are columns, in nanoseconds since 1970.
    pub(super) fn moment(&self, record: &ByteRecord, field: usize) -> Result<i64, RowFault> {
        self.whole(record)?;
        unix_ns(&record[field]).ok_or_else(|| {
            let (head, found) = (&self.heads[field], shown(&record[field]));
            self.fault(record, format!("{head} `{found}` is no moment (write it as 2018-11-08T08:18:55.510Z)"))
        })
    }

    /// What was read, after its end.
    pub(super) fn finish(self) -> Source {
        let Self { path, reader, rows, .. } = self;
        let Hashed { digest, bytes, .. } = reader.into_inner();
        Source { path, digest: digest.finish(), bytes, rows }
    }
}

/// The failure of reading or writing that is behind an error.
pub(super) fn cause(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(source) => source,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// Text from outside, shortened and made fit for a message.
pub(super) fn shown(field: &[u8]) -> String {
    const MOST: usize = 60;
    let text = String::from_utf8_lossy(field);
    let mut out: String = text.chars().take(MOST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().count() > MOST {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn rows_have_places_and_the_file_a_digest() {
        let text = "\u{feff}\"a name\",gpuSerial\r\n\"x, \"\"y\"\"\",007\n1,2,3\n";
        let file = file(text);
        let mut rows = Rows::open(file.path(), b',').unwrap();
        assert_eq!(rows.heads(), ["a name", "gpuSerial"]);
        assert_eq!((rows.find("GPU_serial"), rows.find("aname"), rows.find("b")), (Some(1), Some(0), None));
        assert!(
            rows.column("b").unwrap_err().to_string().ends_with("has no column `b` (there are: a name, gpuSerial)")
        );
        let mut record = ByteRecord::new();
        assert!(rows.next(&mut record).unwrap());
        assert_eq!((&record[0], &record[1]), (b"x, \"y\"".as_slice(), b"007".as_slice()));
        assert_eq!(rows.whole(&record), Ok(()));
        assert!(rows.next(&mut record).unwrap());
        let fault = rows.whole(&record).unwrap_err();
        assert_eq!((fault.line, fault.message.as_str()), (3, "it has 3 fields, but the header has 2"));
        assert!(!rows.next(&mut record).unwrap());
        let source = rows.finish();
        assert_eq!((source.digest, source.bytes), (Digest::of(text.as_bytes()), text.len() as u64));
        assert_eq!(source.rows, 2);
    }

    #[test]
    fn many_faults_are_counted() {
        let mut faults = Faults::default();
        assert!(faults.first().is_none());
        (0..12).for_each(|line| faults.add(RowFault { path: "f".into(), line, message: "no".to_owned() }));
        let text = faults.check().unwrap_err().to_string();
        assert!(text.starts_with("f:0: no\nf:1: no\n") && text.ends_with("f:9: no\nand 2 more"), "{text}");
    }
}
