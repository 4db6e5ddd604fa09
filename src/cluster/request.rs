//! The request to Slurm, merged from flags, the manifest's `[slurm]` and a site's profile.

use crate::record::{Cell, Table, Value, count};
use std::path::PathBuf;

/// The default of `grace_s`: how many seconds before the time limit a task is signalled to stop.
const GRACE_S: u32 = 120;
/// The default is at most the time limit divided by this, so that a short task is not stopped at once.
const GRACE_SHARE: u64 = 4;

/// A request that Slurm cannot fulfil.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// sbatch or the shell would misread a value.
    #[error("slurm.{key} is `{value}`, which sbatch would misread ({remedy})")]
    Unreadable {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// The suggested fix.
        remedy: &'static str,
    },
    /// A cell needs more GPUs than a task has.
    #[error(
        "a cell uses {}, but slurm.gpus_per_task is {given} (leave it out: it follows from the cells)",
        count(wanted, "GPU")
    )]
    TooFewGpus {
        /// GPUs of the cell.
        wanted: u32,
        /// GPUs of a task.
        given: u32,
    },
    /// Tasks would be signalled to stop as soon as they begin.
    #[error(
        "slurm.time is `{time}`, {time_s} seconds, but slurm.grace_s is {grace_s}: each task would be told to stop at once (give it more time, or a smaller grace_s)"
    )]
    NoTime {
        /// The time limit as given.
        time: String,
        /// The time limit in seconds.
        time_s: u64,
        /// The grace period in seconds.
        grace_s: u32,
    },
    /// sbatch would read a path of the submission as a pattern.
    #[error("sbatch cannot take the folder `{}` (set slurm.spool to a path of letters, digits and /._-+@,:=~)", .0.display())]
    Folder(PathBuf),
}

/// Where and how tasks are executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The site whose profile was read.
    pub site: Option<String>,
    /// sbatch's `--partition`.
    pub partition: Option<String>,
    /// sbatch's `--account`.
    pub account: Option<String>,
    /// sbatch's `--qos`.
    pub qos: Option<String>,
    /// sbatch's `--constraint`.
    pub constraint: Option<String>,
    /// sbatch's `--time`.
    pub time: Option<String>,
    /// GPUs per task; `None` derives them from the cells.
    pub gpus_per_task: Option<u32>,
    /// The GPU type, as in sbatch's `--gres`.
    pub gpu_type: Option<String>,
    /// sbatch's `--cpus-per-task`.
    pub cpus_per_task: Option<u32>,
    /// sbatch's `--mem`.
    pub memory: Option<String>,
    /// The maximum number of an array's tasks that run at once.
    pub array_limit: Option<u32>,
    /// Cells per task; `None` derives it from the site's limit.
    pub cells_per_task: Option<u32>,
    /// How many seconds before the time limit a task is signalled to stop.
    pub grace_s: u32,
    /// Whether Slurm may restart a task.
    pub requeue: bool,
    /// Environment modules to load.
    pub modules: Vec<String>,
    /// Shell lines to run before the task.
    pub setup: Vec<String>,
    /// Further options of sbatch.
    pub options: Vec<String>,
    /// The scratch folder on the node.
    pub scratch: Option<String>,
    /// The container image of cells that would otherwise run on the host.
    pub container: Option<PathBuf>,
    /// The container program on the nodes.
    pub container_command: Option<String>,
    /// The folder for submissions, shared by all hosts.
    pub spool: Option<PathBuf>,
    /// The path of ledger's executable on the nodes.
    pub ledger: Option<PathBuf>,
    /// The values as given, by key.
    table: Table,
}

impl Request {
    /// Merges tables with the keys of `[slurm]`; earlier tables take precedence.
    ///
    /// # Errors
    /// If sbatch or the shell would misread a value.
    pub fn merged(layers: &[&Table]) -> Result<Self, RequestError> {
        let mut table = Table::new();
        for layer in layers.iter().rev() {
            table.extend(layer.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        let text = |key: &str| table.get(key).and_then(Value::as_str).map(str::to_owned);
        let number = |key: &str| table.get(key).and_then(Value::as_int).and_then(|number| u32::try_from(number).ok());
        let time_s = table.get("time").and_then(Value::as_str).and_then(seconds);
        let usual_grace_s =
            time_s.and_then(|time_s| u32::try_from(time_s / GRACE_SHARE).ok()).unwrap_or(GRACE_S).min(GRACE_S);
        let list = |key: &str| match table.get(key) {
            Some(Value::List(items)) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        let request = Self {
            site: text("site"),
            partition: text("partition"),
            account: text("account"),
            qos: text("qos"),
            constraint: text("constraint"),
            time: text("time"),
            gpus_per_task: number("gpus_per_task"),
            gpu_type: text("gpu_type"),
            cpus_per_task: number("cpus_per_task"),
            memory: text("memory"),
            array_limit: number("array_limit"),
            cells_per_task: number("cells_per_task"),
            grace_s: number("grace_s").unwrap_or(usual_grace_s),
            requeue: table.get("requeue").and_then(Value::as_bool).unwrap_or(true),
            modules: list("modules"),
            setup: list("setup"),
            options: list("options"),
            scratch: text("scratch"),
            container: text("container").map(PathBuf::from),
            container_command: text("container_command"),
            spool: text("spool").map(PathBuf::from),
            ledger: text("ledger").map(PathBuf::from),
            table,
        };
        request.check()?;
        Ok(request)
    }

    fn check(&self) -> Result<(), RequestError> {
        let refuse = |key: &str, value: &str, remedy| {
            Err(RequestError::Unreadable { key: key.to_owned(), value: value.to_owned(), remedy })
        };
        for key in ["partition", "account", "qos", "constraint", "time", "gpu_type", "memory"] {
            let Some(value) = self.table.get(key).and_then(Value::as_str) else { continue };
            if value.contains(|c: char| c.is_whitespace() || c.is_control() || "\"'\\#`$".contains(c)) {
                return refuse(key, value, "write it without blanks, quotes, `#`, `$` and backslashes");
            }
        }
        for module in &self.modules {
            if module.is_empty() || !module.chars().all(|c| c.is_ascii_alphanumeric() || "/._+-@~".contains(c)) {
                return refuse("modules", module, "a module's name is made of letters, digits and /._+-@~");
            }
        }
        for option in &self.options {
            if !option.starts_with('-') || option.contains(char::is_control) {
                return refuse("options", option, "each is one option of sbatch and begins with `-`");
            }
            if let Some(remedy) = counted_on(option) {
                return refuse("options", option, remedy);
            }
        }
        if let Some(line) = self.setup.iter().find(|line| line.contains('\0')) {
            return refuse("setup", line, "leave out the zero byte");
        }
        if let Some(scratch) = &self.scratch
            && (!scratch.chars().all(|c| c.is_ascii_alphanumeric() || "/._+-@,:= ${}".contains(c))
                || !scratch.starts_with(['/', '$']))
        {
            return refuse("scratch", scratch, "it is a path from `/`, in which variables such as $USER may stand");
        }
        Ok(())
    }

    /// Checks that a task has time to execute anything before it is signalled to stop.
    ///
    /// # Errors
    /// If it has none.
    pub fn check_time(&self) -> Result<(), RequestError> {
        match self.time.as_deref().map(|time| (time, seconds(time))) {
            Some((time, Some(time_s))) if time_s <= u64::from(self.grace_s) => {
                Err(RequestError::NoTime { time: time.to_owned(), time_s, grace_s: self.grace_s })
            }
            _ => Ok(()),
        }
    }

    /// Returns the values as given, by key.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns how many GPUs a task needs to execute a cell.
    ///
    /// # Errors
    /// If a task has fewer than the cell needs.
    pub fn gpus_of(&self, cell: &Cell) -> Result<u32, RequestError> {
        let named = cell.int("hardware.gpus").and_then(|gpus| u32::try_from(gpus).ok());
        let (wanted, least) = match cell.text("hardware.device") {
            Some("cpu") => (0, 0),
            Some("cuda") => (named.unwrap_or(1), named.unwrap_or(1)),
            // With another device the machine decides, and a machine without GPUs is fine.
            _ => (named.unwrap_or(1), named.unwrap_or(0)),
        };
        match self.gpus_per_task {
            Some(given) if given < least => Err(RequestError::TooFewGpus { wanted, given }),
            Some(given) => Ok(given),
            None => Ok(wanted),
        }
    }

    /// Returns a name for the machines that Slurm may choose from, as far as the request restricts them. Runs on one
    /// such kind of machine do not count as done on another.
    pub fn kind(&self, cluster: &str, gpus: u32) -> String {
        let or_any = |text: &Option<String>| text.clone().unwrap_or_else(|| "any".to_owned());
        let gpus = format!("{}x{gpus}", or_any(&self.gpu_type));
        format!("{cluster}/{}/{}/{gpus}", or_any(&self.partition), or_any(&self.constraint))
    }
}

/// Parses a time limit as sbatch does: `MINUTES[:SECONDS]`, `HOURS:MINUTES:SECONDS`, `DAYS-HOURS[:MINUTES[:SECONDS]]`.
/// Returns seconds, or `None` for other words and for 0, which means no limit.
fn seconds(time: &str) -> Option<u64> {
    let number = |text: &str| text.parse::<u64>().ok();
    let parts = |text: &str| text.split(':').map(number).collect::<Option<Vec<u64>>>();
    let (days, [hours, minutes, seconds]) = match time.split_once('-') {
        Some((days, rest)) => {
            let parts = parts(rest)?;
            let at = |place: usize| parts.get(place).copied().unwrap_or(0);
            (number(days)?, (parts.len() < 4).then(|| [at(0), at(1), at(2)])?)
        }
        None => match parts(time)?.as_slice() {
            [minutes] => (0, [0, *minutes, 0]),
            [minutes, seconds] => (0, [0, *minutes, *seconds]),
            [hours, minutes, seconds] => (0, [*hours, *minutes, *seconds]),
            _ => return None,
        },
    };
    let terms = [(days, 86_400), (hours, 3_600), (minutes, 60), (seconds, 1)];
    terms
        .into_iter()
        .try_fold(0_u64, |sum, (count, each)| sum.checked_add(count.checked_mul(each)?))
        .filter(|sum| *sum > 0)
}

/// Options of sbatch that would break ledger's assumptions: the short form, the long form, and the suggested fix.
const COUNTED_ON: [(&str, &str, &str); 8] = [
    ("-M", "--clusters", "submit on the cluster itself: ledger cannot query the jobs of another one"),
    (
        "-a",
        "--array",
        "which tasks there are follows from the cells; --array-limit and --cells-per-task change how many",
    ),
    ("-o", "--output", "a task's output goes to its log, where `ledger status` finds it"),
    ("-e", "--error", "a task's output goes to its log, where `ledger status` finds it"),
    ("", "--open-mode", "each start of a task adds to its log"),
    ("", "--signal", "slurm.grace_s says how long before its end a task is told to stop"),
    ("-W", "--wait", "`ledger submit --wait` waits"),
    ("", "--test-only", "`ledger submit --dry-run` submits nothing"),
];

/// Returns the suggested fix for an option that would break ledger's assumptions, also in the abbreviations that sbatch
/// accepts.
fn counted_on(option: &str) -> Option<&'static str> {
    let name = option.split(['=', ' ']).next().unwrap_or_default();
    let is = |(short, long, _): &&(&str, &str, &str)| {
        let is_short = !short.is_empty() && option.starts_with(short);
        // One letter is ambiguous: other options begin with it, and sbatch accepts none of them.
        is_short || name.len() > "--x".len() && long.starts_with(name)
    };
    COUNTED_ON.iter().find(is).map(|(.., remedy)| *remedy)
}

#[cfg(test)]
mod tests {
    use super::super::fields::table_of;
    use super::*;

    fn request(table: &Table) -> Result<Request, RequestError> {
        Request::merged(&[table])
    }

    #[test]
    fn earlier_layers_take_precedence() {
        let flags = table_of([("partition", "gpu".into()), ("array_limit", 3_i64.into())]);
        let manifest = table_of([("partition", "cpu".into()), ("modules", vec!["cuda/12.2.2"].into())]);
        let site = table_of([("modules", vec!["gcc"].into()), ("account", "a".into()), ("requeue", false.into())]);
        let request = Request::merged(&[&flags, &manifest, &site]).unwrap();
        assert_eq!(request.partition.as_deref(), Some("gpu"));
        assert_eq!((request.array_limit, request.account.as_deref()), (Some(3), Some("a")));
        assert_eq!((request.modules.as_slice(), request.requeue), (["cuda/12.2.2".to_owned()].as_slice(), false));
        assert_eq!(request.grace_s, 120);
        assert_eq!(request.kind("c", 2), "c/gpu/any/anyx2");
    }

    #[test]
    fn values_that_sbatch_or_the_shell_would_misread_are_refused() {
        for (key, value) in [
            ("partition", Value::from("a --wrap=x")),
            ("account", "a#b".into()),
            ("modules", vec!["cuda; rm"].into()),
            ("options", vec!["exclusive"].into()),
            ("options", vec!["--x\n#SBATCH --y"].into()),
            ("options", vec!["-Mother"].into()),
            ("options", vec!["--clusters=other"].into()),
            ("options", vec!["--cluster other"].into()),
            ("options", vec!["--array=0-1"].into()),
            ("options", vec!["--sig=B:USR1@5"].into()),
            ("options", vec!["-o/dev/null"].into()),
            ("options", vec!["--error=/dev/null"].into()),
            ("options", vec!["--open-mode=truncate"].into()),
            ("options", vec!["--wait"].into()),
            ("options", vec!["--test-only"].into()),
            ("scratch", "$(rm -r x)".into()),
            ("scratch", "here".into()),
        ] {
            let error = request(&table_of([(key, value.clone())])).unwrap_err();
            assert!(matches!(&error, RequestError::Unreadable { key: found, .. } if found == key), "{key} {value}");
        }
        for (key, value) in [("scratch", "${SLURM_TMPDIR}/$USER"), ("constraint", "[a|b]&c*2")] {
            request(&table_of([(key, value.into())])).unwrap();
        }
        for option in ["--cluster-constraint=a", "--wait-all-nodes=1", "--hold", "--exclude=n1", "--overcommit"] {
            request(&table_of([("options", vec![option].into())])).unwrap();
        }
    }

    #[test]
    fn the_grace_period_leaves_time_for_the_task() {
        let limits = [
            ("1", Some(60)),
            ("2:30", Some(150)),
            ("1:00:05", Some(3_605)),
            ("1-12", Some(129_600)),
            ("2-3:04", Some(183_840)),
            ("0-0:0:9", Some(9)),
            ("UNLIMITED", None),
            ("0", None),
            ("1:2:3:4", None),
            ("1-2:3:4:5", None),
            ("99999999999999999999", None),
            ("18446744073709551615-0", None),
        ];
        for (time, expected) in limits {
            assert_eq!(seconds(time), expected, "{time}");
        }
        let of = |time: &str, grace_s: Option<i64>| {
            let mut table = table_of([("time", time.into())]);
            table.extend(grace_s.map(|grace_s| ("grace_s".to_owned(), grace_s.into())));
            request(&table).unwrap()
        };
        for (time, grace_s) in [("1", 15), ("4", 60), ("8", 120), ("1-0", 120), ("UNLIMITED", 120)] {
            let request = of(time, None);
            assert_eq!((request.grace_s, request.check_time()), (grace_s, Ok(())), "{time}");
        }
        assert_eq!(of("2", Some(119)).check_time(), Ok(()));
        let said = of("2", Some(120)).check_time().unwrap_err().to_string();
        assert_eq!(
            said,
            "slurm.time is `2`, 120 seconds, but slurm.grace_s is 120: each task would be told to stop at once (give it more time, or a smaller grace_s)"
        );
    }

    #[test]
    fn gpus_follow_from_the_cell_unless_they_are_given() {
        let cell = |fields: &[(&str, Value)]| Cell {
            config: fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            ..Cell::default()
        };
        let free = request(&Table::new()).unwrap();
        let device = |word: &str| ("hardware.device", Value::from(word));
        assert_eq!(free.gpus_of(&cell(&[device("cpu")])), Ok(0));
        assert_eq!(free.gpus_of(&cell(&[device("auto")])), Ok(1));
        assert_eq!(free.gpus_of(&cell(&[device("cuda"), ("hardware.gpus", 4_i64.into())])), Ok(4));
        let given = |gpus: i64| request(&table_of([("gpus_per_task", gpus.into())])).unwrap();
        assert_eq!(given(0).gpus_of(&cell(&[device("auto")])), Ok(0));
        assert_eq!(given(2).gpus_of(&cell(&[device("cpu")])), Ok(2));
        let four = cell(&[device("cuda"), ("hardware.gpus", 4_i64.into())]);
        assert_eq!(given(2).gpus_of(&four), Err(RequestError::TooFewGpus { wanted: 4, given: 2 }));
        assert!(given(0).gpus_of(&cell(&[device("cuda")])).is_err());
    }
}
