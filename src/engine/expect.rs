//! The known parts of a cell's run, while the machine that will execute it is unknown: a login node has other devices
//! than the cluster's nodes.

use super::bind::bind_data;
use super::bound::Trainer;
use super::closure::check_program;
use super::container::{self, EXPECTED, STAMP};
use super::machine::Machine;
use super::program::{DIRECTORY, Named, ProgramFile, Stated};
use super::refusal::{BindError, Refusal};
use crate::manifest::Program;
use crate::record::{Cell, Digest, Run, Table, Value};
use std::collections::BTreeSet;
use std::path::Path;

/// Fields that the machine decides if the cell leaves them open.
const DEVICE: &str = "hardware.device";
const GPUS: &str = "hardware.gpus";
const DATA: &str = "data.digest";

/// A cell, and the parts of its run that do not depend on the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    cell: Cell,
    /// The program part by device, or `program` if it is the same for all.
    programs: Table,
    /// The hash of the configuration without the fields that a machine may decide.
    config: Digest,
    /// The program's files. Empty if the value was made from recorded parts.
    files: Vec<ProgramFile>,
}

impl Expected {
    /// From a cell of [`anchor`](super::anchor). Data that cannot be read on this machine are left open.
    ///
    /// # Errors
    /// If there is no trainer, or the image or the program's files cannot be read.
    pub fn of(
        cell: &Cell,
        program: Option<&Program>,
        trainer: Option<&Trainer>,
        machine: &Machine,
    ) -> Result<Self, BindError> {
        let mut cell = cell.clone();
        if let Some(path) = container::asked(&cell)? {
            // The container program need not be installed here.
            let (sha256, stamp, _) = machine.image(&path)?;
            cell.settings.insert(EXPECTED.to_owned(), sha256.into());
            if stamp.is_settled_now() {
                cell.settings.insert(STAMP.to_owned(), stamp.shared().into());
            }
        }
        let mut files = Vec::new();
        let programs: Table = match program {
            Some(program) => {
                let is_contained = container::asked(&cell)?.is_some();
                if !is_contained {
                    check_program(&program.argv(&cell)?, Path::new(cell.text(DIRECTORY).unwrap_or(".")), false)?;
                }
                let named = Named::of(program, (&cell, Stated::of(program, &cell)), is_contained, machine)?;
                files = named.files;
                [("program".to_owned(), named.part)].into()
            }
            None => {
                let trainer = trainer.ok_or(Refusal::NoTrainer)?;
                // A node may see files that this machine does not. It reports missing ones.
                let _ = bind_data(&mut cell, Some(trainer), machine);
                ["cpu", "cuda"].map(|device| (device.to_owned(), trainer.part(device, &cell))).into()
            }
        };
        Ok(Self { files, ..Self::recorded(cell, programs) })
    }

    /// The program's files, if they are known.
    pub fn program_files(&self) -> &[ProgramFile] {
        &self.files
    }

    /// From a stored [`cell`](Self::cell) and stored [`programs`](Self::programs).
    pub fn recorded(cell: Cell, programs: Table) -> Self {
        let config = open(&cell.config);
        Self { cell, programs, config, files: Vec::new() }
    }

    /// The cell, with the digest of its data if that is known.
    pub fn cell(&self) -> &Cell {
        &self.cell
    }

    /// The id of the cell: the hash of its known configuration, its programs, its seed and its image.
    pub fn id(&self) -> Digest {
        let config = Value::Table(self.cell.config.clone()).digest();
        let programs = Value::Table(self.programs.clone()).digest();
        let seed = Value::from(self.cell.seed.to_string()).digest();
        // Data with unknown content are identified by their path.
        let unread = if self.cell.config.contains_key(DATA) { None } else { self.cell.text("data.path") };
        let data = Value::from(unread.unwrap_or_default()).digest();
        let mut pieces: Vec<&[u8]> = vec![&config.0, &programs.0, &seed.0, &data.0];
        pieces.extend(self.cell.text(EXPECTED).map(str::as_bytes));
        let binds = container::binds(&self.cell);
        pieces.extend(binds.iter().map(|bind| bind.as_bytes()));
        Digest::of_pieces("ledger cell v1", &pieces)
    }

    /// The hash of the configuration without the fields that a machine may decide. All runs of this cell have the same
    /// (see [`Expected::of_run`]).
    pub fn config(&self) -> Digest {
        self.config
    }

    /// As [`config`](Self::config), for a run.
    pub fn of_run(run: &Run) -> Digest {
        open(run.config())
    }

    /// The program part by device: `program` if it is the same for all, otherwise `cpu` and `cuda`.
    pub fn programs(&self) -> &Table {
        &self.programs
    }

    /// Whether a run belongs to this cell, whatever its machine.
    pub fn agrees(&self, run: &Run) -> bool {
        self.difference(run).is_none()
    }

    /// The first part in which a run differs from this cell. `None` if the run belongs to it.
    pub fn difference(&self, run: &Run) -> Option<&'static str> {
        let (here, there) = (&self.cell.config, run.config());
        let device = there.get(DEVICE).and_then(Value::as_str).unwrap_or("cpu");
        let device_fits = match here.get(DEVICE).and_then(Value::as_str) {
            None | Some("auto") => true,
            Some(wanted) => device == wanted,
        };
        let gpus = there.get(GPUS).and_then(Value::as_int);
        let gpus_fit = device != "cuda" || gpus == self.cell.int(GPUS).or(Some(1));
        let data_fits = here.get(DATA).is_none_or(|known| there.get(DATA) == Some(known));
        let program = self.programs.get("program").or_else(|| self.programs.get(device));
        let container = container::part(self.cell.text(EXPECTED));
        let rules = [
            ("seed", self.cell.seed == run.parts.seed),
            ("configuration", self.config == open(there)),
            ("device", device_fits),
            ("number of GPUs", gpus_fit),
            ("data", data_fits),
            ("container", *container::image_of(&run.parts.container) == container),
            ("program", program == Some(&run.parts.program)),
        ];
        rules.into_iter().find(|(_, fits)| !fits).map(|(name, _)| name)
    }

    /// The program's files that differ in a run, or that only one of both has.
    pub fn changed_files(&self, run: &Run) -> Vec<String> {
        let (here, there) = (self.programs.get("program").map(files).unwrap_or_default(), files(&run.parts.program));
        let names: BTreeSet<&String> = here.keys().chain(there.keys()).collect();
        names.into_iter().filter(|name| here.get(*name) != there.get(*name)).cloned().collect()
    }
}

/// The files of a program part, by name.
fn files(program: &Value) -> Table {
    let files = program.as_table().and_then(|program| program.get("files")?.as_table());
    files.cloned().unwrap_or_default()
}

fn open(config: &Table) -> Digest {
    let fixed = config.iter().filter(|(field, _)| ![DEVICE, GPUS, DATA].contains(&field.as_str()));
    Value::Table(fixed.map(|(field, value)| (field.clone(), value.clone())).collect()).digest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Parts;

    fn trainer() -> Trainer {
        let program = |device: &str, _: &str| if device == "cpu" { "for the CPU" } else { "for CUDA" }.into();
        Trainer { program, generators: vec![] }
    }

    fn expected(fields: &[(&str, Value)]) -> Expected {
        let config = fields.iter().map(|(field, value)| ((*field).to_owned(), value.clone())).collect();
        let cell = Cell { config, seed: 7, ..Cell::default() };
        Expected::of(&cell, None, Some(&trainer()), &Machine::default()).unwrap()
    }

    fn run(fields: &[(&str, Value)], program: &str, seed: u64) -> Run {
        let config: Table = fields.iter().map(|(field, value)| ((*field).to_owned(), value.clone())).collect();
        let (container, device) = ("host".into(), "whatever".into());
        let (cuda, driver) = ("13".into(), "580".into());
        Run::new(Parts { config: config.into(), program: program.into(), container, cuda, driver, device, seed })
    }

    #[test]
    fn fields_that_the_machine_decides_may_differ_and_all_others_must_agree() {
        let free = expected(&[("lr", 1_i64.into()), (DEVICE, "auto".into()), (GPUS, 2_i64.into())]);
        let gpu = [("lr", 1_i64.into()), (DEVICE, "cuda".into()), (GPUS, 2_i64.into()), (DATA, "d".into())];
        let cpu = [("lr", 1_i64.into()), (DEVICE, "cpu".into()), (GPUS, 0_i64.into())];
        assert!(free.agrees(&run(&gpu, "for CUDA", 7)) && free.agrees(&run(&cpu, "for the CPU", 7)));
        assert_eq!(free.difference(&run(&gpu, "for the CPU", 7)), Some("program"));
        assert_eq!(free.difference(&run(&gpu, "for CUDA", 8)), Some("seed"));
        let other = [("lr", 2_i64.into()), (DEVICE, "cuda".into()), (GPUS, 2_i64.into())];
        assert_eq!(free.difference(&run(&other, "for CUDA", 7)), Some("configuration"));
        let one = expected(&[("lr", 1_i64.into()), (DEVICE, "cuda".into()), (GPUS, 1_i64.into())]);
        assert_eq!(one.difference(&run(&gpu, "for CUDA", 7)), Some("number of GPUs"));
        assert_eq!(one.difference(&run(&cpu, "for the CPU", 7)), Some("device"));
        let none = expected(&[("lr", 1_i64.into()), (DEVICE, "auto".into())]);
        assert_eq!(none.difference(&run(&gpu, "for CUDA", 7)), Some("number of GPUs"), "1 where none is named");
        let mut read = one.clone();
        read.cell.config.insert(DATA.to_owned(), "e".into());
        let single = [("lr", 1_i64.into()), (DEVICE, "cuda".into()), (GPUS, 1_i64.into()), (DATA, "d".into())];
        assert!(one.agrees(&run(&single, "for CUDA", 7)));
        assert_eq!(read.difference(&run(&single, "for CUDA", 7)), Some("data"));
    }

    #[test]
    fn changed_missing_and_new_program_files_are_listed() {
        let program = |files: &[(&str, &str)]| -> Value {
            let files: Table = files.iter().map(|(name, digest)| ((*name).to_owned(), (*digest).into())).collect();
            Value::Table([("files".to_owned(), files.into())].into())
        };
        let was = program(&[("a.py", "1"), ("b.py", "1"), ("same.py", "1")]);
        let expected = Expected::recorded(Cell { seed: 7, ..Cell::default() }, [("program".to_owned(), was)].into());
        let mut parts = run(&[], "", 7).parts;
        parts.program = program(&[("a.py", "2"), ("c.py", "1"), ("same.py", "1")]);
        let is = Run::new(parts);
        assert_eq!(expected.difference(&is), Some("program"));
        assert_eq!(expected.changed_files(&is), ["a.py", "b.py", "c.py"]);
    }

    #[test]
    fn the_id_of_a_cell_depends_on_everything_known() {
        let cell = |rate: i64| expected(&[("lr", rate.into()), (DEVICE, "auto".into())]);
        assert_eq!(cell(1).id(), cell(1).id());
        assert_ne!(cell(1).id(), cell(2).id());
        let mut built = cell(1);
        built.programs.insert("cpu".to_owned(), "another".into());
        assert_ne!(built.id(), cell(1).id());
        let mut contained = cell(1);
        contained.cell.settings.insert(EXPECTED.to_owned(), "ab".into());
        assert_ne!(contained.id(), cell(1).id());
        let host = run(&[("lr", 1_i64.into()), (DEVICE, "cpu".into())], "for the CPU", 7);
        assert_eq!((cell(1).difference(&host), contained.difference(&host)), (None, Some("container")));
        let mut parts = host.parts;
        parts.container = "sha256:ab".into();
        assert!(contained.agrees(&Run::new(parts)));
    }
}
