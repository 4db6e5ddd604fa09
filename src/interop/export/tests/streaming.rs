//! Files that are written point by point.

use super::*;
use std::io::{Error, ErrorKind, Seek, SeekFrom, Write};

/// A disk with this number of free bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Full {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Ok(0)
    }
}

fn each_form(entry: &Entry, points: &PointsOf<'_>, see: &mut dyn FnMut(&File<'_>)) {
    let mlflow = mlflow_files(entry, points, Path::new("/tmp"));
    see(mlflow.files.iter().find(|file| file.path.ends_with("series/loss")).unwrap());
    see(&tensorboard_file(entry, points));
    see(&perfetto_trace(entry, points));
    see(&mllog_lines(entry, points));
}

#[test]
fn a_full_disk_is_an_error_in_every_format() {
    let [entry, _] = both();
    each_form(&entry, &points_of(&entry), &mut |file| {
        let (path, whole) = content(file);
        for room in 0..whole.len() {
            let error = file.write(&mut Full(room)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{}: {room}", path.display());
        }
        file.write(&mut Full(whole.len())).unwrap();
    });
    let whole = points_written(Encoding::Csv, &[&entry]).len();
    for room in 0..whole {
        let mut writer = TableWriter::new(Encoding::Csv, Full(room));
        let written = write_points(&entry, &points_of(&entry), &mut writer).and_then(|()| writer.finish());
        assert_eq!(written.unwrap_err().kind(), ErrorKind::StorageFull, "{room}");
    }
}

#[test]
fn an_unreadable_series_is_an_error_in_every_format() {
    let [mut entry, _] = both();
    let mut found = Series::new("eval_loss", "", Axis::Step);
    found.push(2, 1.5);
    entry.sealed.attempt.series.push(found.summary());
    let unreadable = |_: &str, _: &mut dyn FnMut(u64, f64)| Err(Error::other("unreadable"));
    each_form(&entry, &unreadable, &mut |file| {
        let written = file.write(&mut io::Cursor::new(Vec::new()));
        assert_eq!(written.unwrap_err().to_string(), "unreadable", "{}", file.path.display());
    });
}

#[test]
fn points_of_several_pieces_are_one_table() {
    let [mut entry, _] = both();
    let points = (1usize << 16) + 1;
    let mut long = Series::new("long", "", Axis::Step);
    (0..points).for_each(|step| long.push(step as u64, 0.5));
    entry.sealed.attempt.series = vec![long.summary()];
    entry.sealed.series = vec![long];
    let rows = String::from_utf8(points_written(Encoding::Csv, &[&entry])).unwrap();
    assert_eq!(rows.lines().count(), 1 + points);
    assert!(rows.lines().last().unwrap().contains(",long,,65536,"), "{}", rows.lines().last().unwrap());
}
