//! Calibrations of GPU sensors, stored beside the ledger by product, firmware and driver.
//!
//! Each is a JSON file with a digest of its other fields. A measurement copies its calibration into the record, so the
//! record stays valid if the file changes or disappears.

use crate::gpu::{GpuInfo, Gpus};
use crate::host::{HostError, files};
use crate::record::{Check, Digest, Table, Value};
use crate::wire::{from_json, to_json_text};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

const FOLDER: &str = "calibrations";
const FORMAT: i64 = 1;
/// The firmware version if it cannot be read.
const UNKNOWN: &str = "unknown";

/// A calibration cannot be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// A file operation failed.
    #[error("cannot {action} `{path}`", path = .path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The content is not as it was written.
    #[error("the calibration `{path}` is not used: {why} (`ledger calibrate` makes a new one)", path = .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        why: String,
    },
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CalibrationError {
    let path = path.to_owned();
    move |source| CalibrationError::Io { action, path, source }
}

/// The calibration of one product, firmware and driver.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptCalibration {
    /// The beginning of the hash of product, firmware and driver.
    pub key: String,
    /// The content.
    pub table: Table,
    /// The path of the file.
    pub path: PathBuf,
}

impl KeptCalibration {
    /// The folder of the calibrations.
    pub(super) fn folder(ledger: &Path) -> PathBuf {
        ledger.join(FOLDER)
    }

    /// A calibration that is not written yet. `found` has the sensors by name, and the conditions of the calibration.
    pub(super) fn new(ledger: &Path, device: &str, vbios: Option<&str>, driver: &str, found: Table) -> Self {
        let key = key(device, vbios, driver);
        let mut table = found;
        for (name, value) in [("device", device), ("vbios", vbios.unwrap_or(UNKNOWN)), ("driver", driver)] {
            table.insert(name.to_owned(), value.into());
        }
        table.insert("format".to_owned(), FORMAT.into());
        table.remove("digest");
        let digest = Value::Table(table.clone()).digest();
        table.insert("digest".to_owned(), digest.to_string().into());
        Self { path: Self::folder(ledger).join(format!("{key}.json")), key, table }
    }

    /// Writes it atomically, replacing an older one.
    pub(super) fn write(&self) -> Result<(), CalibrationError> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        files::private_folder(folder).map_err(io_error("make the folder", folder))?;
        Ok(files::write_whole(&self.path, to_json_text(&self.table.clone().into()).as_bytes())?)
    }

    /// The calibration of a product, firmware and driver, if there is one.
    ///
    /// # Errors
    /// If the file cannot be read or is damaged.
    pub fn find(
        ledger: &Path,
        device: &str,
        vbios: Option<&str>,
        driver: &str,
    ) -> Result<Option<Self>, CalibrationError> {
        let key = key(device, vbios, driver);
        let path = Self::folder(ledger).join(format!("{key}.json"));
        let kept = Self::read(&path)?;
        let same = |kept: &Self| kept.text("device") == device && kept.text("driver") == driver;
        if let Some(kept) = kept.as_ref().filter(|kept| !same(kept)) {
            let why = format!("it is of {} with driver {}", kept.text("device"), kept.text("driver"));
            return Err(CalibrationError::Damaged { path, why });
        }
        Ok(kept)
    }

    /// Every stored calibration, by key, and the errors of those that cannot be read.
    ///
    /// # Errors
    /// If the folder cannot be listed.
    pub fn list(ledger: &Path) -> Result<(Vec<Self>, Vec<CalibrationError>), CalibrationError> {
        let (mut found, mut faults) = (Vec::new(), Vec::new());
        for path in Self::paths(ledger)? {
            match Self::read(&path) {
                Ok(kept) => found.extend(kept),
                Err(fault) => faults.push(fault),
            }
        }
        Ok((found, faults))
    }

    /// Copies all calibrations of one ledger to another, unchanged. A ledger without any copies none.
    ///
    /// # Errors
    /// If they cannot be read or written.
    pub fn hand_on(from: &Path, to: &Path) -> Result<(), CalibrationError> {
        let target = Self::folder(to);
        for path in Self::paths(from)? {
            let Some(name) = path.file_name() else { continue };
            let bytes = fs::read(&path).map_err(io_error("read", &path))?;
            files::private_folder(&target).map_err(io_error("make the folder", &target))?;
            files::write_whole(&target.join(name), &bytes)?;
        }
        Ok(())
    }

    /// The files of a ledger's calibrations, sorted by name.
    fn paths(ledger: &Path) -> Result<Vec<PathBuf>, CalibrationError> {
        let folder = Self::folder(ledger);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(io_error("list", &folder))?,
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        paths.sort();
        Ok(paths)
    }

    /// A text field; empty if it is missing.
    pub fn text(&self, name: &str) -> &str {
        self.table.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn read(path: &Path) -> Result<Option<Self>, CalibrationError> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(io_error("read", path))?,
        };
        let damaged = |why: String| CalibrationError::Damaged { path: path.to_owned(), why };
        let Ok(Value::Table(mut table)) = from_json(&text) else {
            return Err(damaged("it is not a JSON object".to_owned()));
        };
        let format = table.get("format").and_then(Value::as_int);
        if let Some(newer) = format.filter(|format| *format > FORMAT) {
            return Err(damaged(format!("it has format {newer}, but this ledger reads up to {FORMAT}")));
        }
        let stated = table.remove("digest").and_then(|digest| digest.as_str()?.parse::<Digest>().ok());
        let digest = Value::Table(table.clone()).digest();
        if stated != Some(digest) {
            return Err(damaged("its digest does not match its content".to_owned()));
        }
        table.insert("digest".to_owned(), digest.to_string().into());
        let key = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Ok(Some(Self { key, table, path: path.to_owned() }))
    }
}

/// The check of `doctor` for the calibrations of these GPUs.
pub fn calibration_check(ledger: &Path, gpus: &Gpus, used: &[GpuInfo]) -> Check {
    const NAME: &str = "calibration";
    const CONSEQUENCE: &str = "energies assume a default sensor delay, with wider intervals";
    const FIX: &str = "`ledger calibrate`, while nothing else uses the GPUs";
    let driver = match gpus.driver_version() {
        Ok(driver) => driver,
        Err(error) => return Check::missing(NAME, error.to_string(), CONSEQUENCE, FIX),
    };
    let (mut there, mut missing) = (BTreeSet::new(), BTreeSet::new());
    for gpu in used {
        match KeptCalibration::find(ledger, &gpu.name, gpus.vbios(gpu).as_deref(), &driver) {
            Ok(Some(kept)) => there.insert(format!("{} ({})", gpu.name, kept.key)),
            Ok(None) => missing.insert(format!("none of {} with driver {driver}", gpu.name)),
            Err(error) => missing.insert(error.to_string()),
        };
    }
    let list = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(", ");
    if missing.is_empty() {
        Check::ok(NAME, list(there))
    } else {
        Check::missing(NAME, list(missing), CONSEQUENCE, FIX)
    }
}

fn key(device: &str, vbios: Option<&str>, driver: &str) -> String {
    let pieces = [device, vbios.unwrap_or(UNKNOWN), driver].map(str::as_bytes);
    Digest::of_pieces("ledger calibration v1", &pieces).prefix(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(ledger: &Path, driver: &str) -> KeptCalibration {
        let found = Table::from([("energy".to_owned(), Table::from([("quantum_j".to_owned(), 0.001.into())]).into())]);
        KeptCalibration::new(ledger, "NVIDIA H200", Some("96.00"), driver, found)
    }

    #[test]
    fn each_product_firmware_and_driver_has_its_own_calibration() {
        let ledger = tempfile::tempdir().unwrap();
        let find = |device: &str, vbios: Option<&str>, driver: &str| {
            KeptCalibration::find(ledger.path(), device, vbios, driver).unwrap()
        };
        assert_eq!(find("NVIDIA H200", Some("96.00"), "580.1"), None);
        assert_eq!(KeptCalibration::list(ledger.path()).unwrap().0, []);
        let [one, other] = ["580.1", "580.2"].map(|driver| kept(ledger.path(), driver));
        one.write().unwrap();
        other.write().unwrap();
        one.write().unwrap();
        assert_eq!(find("NVIDIA H200", Some("96.00"), "580.1"), Some(one.clone()));
        assert_eq!(find("NVIDIA H200", Some("96.01"), "580.1"), None);
        assert_eq!(find("NVIDIA H200", None, "580.1"), None);
        assert_eq!(find("NVIDIA H100", Some("96.00"), "580.1"), None);
        let (mut all, faults) = KeptCalibration::list(ledger.path()).unwrap();
        all.sort_by_key(|kept| kept.text("driver").to_owned());
        assert_eq!((all, faults.len()), (vec![one, other], 0));
    }

    #[test]
    fn calibrations_are_copied_to_another_ledger() {
        let (ledger, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        KeptCalibration::hand_on(ledger.path(), other.path()).unwrap();
        assert!(!other.path().join(FOLDER).exists());
        let one = kept(ledger.path(), "580.1");
        one.write().unwrap();
        fs::write(ledger.path().join(FOLDER).join("notes.txt"), "x").unwrap();
        KeptCalibration::hand_on(ledger.path(), other.path()).unwrap();
        KeptCalibration::hand_on(ledger.path(), other.path()).unwrap();
        let found = KeptCalibration::find(other.path(), "NVIDIA H200", Some("96.00"), "580.1").unwrap().unwrap();
        assert_eq!(found.table, one.table);
        assert_eq!(fs::read_dir(other.path().join(FOLDER)).unwrap().count(), 1);
    }

    #[test]
    fn a_calibration_that_was_changed_by_hand_is_not_used() {
        let ledger = tempfile::tempdir().unwrap();
        let one = kept(ledger.path(), "580.1");
        one.write().unwrap();
        let text = fs::read_to_string(&one.path).unwrap();
        let newer = text.replace("\"format\": 1", "\"format\": 2");
        let other = kept(ledger.path(), "580.2");
        let cases = [
            (text.replace("0.001", "0.002"), "its digest does not match its content"),
            (newer, "it has format 2, but this ledger reads up to 1"),
            (text[..text.len() / 2].to_owned(), "it is not a JSON object"),
            ("[]".to_owned(), "it is not a JSON object"),
            (String::new(), "it is not a JSON object"),
            (to_json_text(&other.table.clone().into()), "it is of NVIDIA H200 with driver 580.2"),
        ];
        for (text, why) in cases {
            fs::write(&one.path, text).unwrap();
            let error = KeptCalibration::find(ledger.path(), "NVIDIA H200", Some("96.00"), "580.1").unwrap_err();
            let expected = format!(
                "the calibration `{}` is not used: {why} (`ledger calibrate` makes a new one)",
                one.path.display()
            );
            assert_eq!(error.to_string(), expected);
        }
    }
}
