//! The script of a job array.

use super::Request;
use crate::record::count;
use std::fmt::Write;
use std::path::Path;

/// The inputs of a script.
#[derive(Clone, Debug)]
pub struct Script<'a> {
    /// The submission's name.
    pub name: &'a str,
    /// The experiment's name, which becomes the job name in the queue.
    pub experiment: &'a str,
    /// The time of submission, as text.
    pub when: &'a str,
    /// The submission's folder.
    pub folder: &'a Path,
    /// The index of the array in its submission.
    pub array: usize,
    /// The number of its tasks.
    pub tasks: usize,
    /// The number of its cells.
    pub cells: usize,
    /// GPUs per task.
    pub gpus: u32,
    /// The path of ledger's executable on the nodes.
    pub ledger: &'a Path,
    /// The request.
    pub request: &'a Request,
}

/// Whether a character needs no quoting in a shell.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "/._+-@,:=%".contains(c)
}

/// Quotes a word for the shell.
pub fn quoted(word: &str) -> String {
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl Script<'_> {
    /// Returns the text of the script.
    pub fn text(&self) -> String {
        let mut out = String::from("#!/bin/bash\n");
        let (cells, tasks) = (count(self.cells, "cell"), count(self.tasks, "task"));
        let name = self.name;
        line(
            &mut out,
            format_args!("# {cells} in {tasks}, submission {name}, written by `ledger submit` on {}", self.when),
        );
        self.options(&mut out);
        self.surroundings(&mut out);
        self.task(&mut out);
        out
    }

    fn options(&self, out: &mut String) {
        let request = self.request;
        let mut put = |name: &str, value: &dyn std::fmt::Display| {
            line(out, format_args!("#SBATCH --{name}={value}"));
        };
        put("job-name", &self.experiment);
        let limit = request.array_limit.map_or_else(String::new, |limit| format!("%{limit}"));
        put("array", &format_args!("0-{}{limit}", self.tasks.saturating_sub(1)));
        put("output", &format_args!("{}/logs/%A_%a.log", self.folder.display()));
        put("open-mode", &"append");
        put("nodes", &1);
        put("ntasks", &1);
        let texts = [
            ("partition", &request.partition),
            ("account", &request.account),
            ("qos", &request.qos),
            ("constraint", &request.constraint),
            ("time", &request.time),
            ("mem", &request.memory),
        ];
        for (name, value) in texts {
            if let Some(value) = value {
                put(name, value);
            }
        }
        if let Some(cpus) = request.cpus_per_task {
            put("cpus-per-task", &cpus);
        }
        if self.gpus > 0 {
            let kind = request.gpu_type.as_ref().map_or_else(String::new, |kind| format!("{kind}:"));
            put("gres", &format_args!("gpu:{kind}{}", self.gpus));
        }
        put("signal", &format_args!("B:USR1@{}", request.grace_s));
        line(out, format_args!("#SBATCH --{}", if request.requeue { "requeue" } else { "no-requeue" }));
        for option in &request.options {
            line(out, format_args!("#SBATCH {option}"));
        }
        out.push('\n');
    }

    fn surroundings(&self, out: &mut String) {
        let request = self.request;
        if !request.modules.is_empty() {
            // Login shells define the function `module`. The profile that defines it may change PATH as well.
            out.push_str("type module > /dev/null 2>&1 || { path=$PATH; source /etc/profile; PATH=$path:$PATH; }\n");
            line(out, format_args!("module load {} || exit 1", request.modules.join(" ")));
        }
        for text in &request.setup {
            line(out, format_args!("{text}"));
        }
        if let Some(command) = &request.container_command {
            line(out, format_args!("export LEDGER_CONTAINER_COMMAND={}", quoted(command)));
        }
        let scratch = request.scratch.as_deref().unwrap_or("${SLURM_TMPDIR:-${TMPDIR:-/tmp}}");
        line(out, format_args!("export LEDGER_SCRATCH=\"{scratch}\"\n"));
    }

    /// Slurm sends the warning signal to the script only, and its other signals to every process of the job.
    fn task(&self, out: &mut String) {
        let ledger = quoted(&self.ledger.display().to_string());
        let folder = quoted(&self.folder.display().to_string());
        out.push_str("trap 'kill -USR1 \"$task\"' USR1\ntrap : TERM\n");
        line(out, format_args!("{ledger} task {folder} --array {} &", self.array));
        out.push_str(
            "task=$!\n\
             while wait \"$task\"; kill -0 \"$task\" 2> /dev/null; do :; done\n\
             # A signal may have ended the last wait just before the task ended.\n\
             wait \"$task\"; code=$?\n\
             # Another start can execute what is left.\n\
             [ \"$code\" -ne 75 ] || scontrol requeue \"$SLURM_JOB_ID\"\n\
             exit \"$code\"\n",
        );
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use super::super::fields::table_of;
    use super::*;
    use crate::record::Table;

    fn text(table: &Table, gpus: u32) -> String {
        let request = Request::merged(&[table]).unwrap();
        Script {
            name: "20261122-033624-toy",
            experiment: "toy",
            when: "2026-11-22 03:36:24 UTC",
            folder: Path::new("/home/me/ledger/slurm/20261122-033624-toy"),
            array: 0,
            tasks: 3,
            cells: 9,
            gpus,
            ledger: Path::new("/opt/it's/ledger"),
            request: &request,
        }
        .text()
    }

    #[test]
    fn a_script_is_what_a_person_would_write() {
        let table = table_of([
            ("partition", "gpu".into()),
            ("account", "def-me".into()),
            ("time", "2:00:00".into()),
            ("gpu_type", "h200".into()),
            ("cpus_per_task", 8_i64.into()),
            ("memory", "32G".into()),
            ("constraint", "[rack1|rack2]".into()),
            ("array_limit", 2_i64.into()),
            ("grace_s", 300_i64.into()),
            ("requeue", false.into()),
            ("modules", vec!["singularity", "cuda/12.2.2"].into()),
            ("setup", vec!["ulimit -l unlimited"].into()),
            ("options", vec!["--exclusive"].into()),
            ("container_command", "/opt/apptainer/bin/apptainer".into()),
            ("scratch", "/local/$USER".into()),
        ]);
        let expected = r#"#!/bin/bash
# 9 cells in 3 tasks, submission 20261122-033624-toy, written by `ledger submit` on 2026-11-22 03:36:24 UTC
#SBATCH --job-name=toy
#SBATCH --array=0-2%2
#SBATCH --output=/home/me/ledger/slurm/20261122-033624-toy/logs/%A_%a.log
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --partition=gpu
#SBATCH --account=def-me
#SBATCH --constraint=[rack1|rack2]
#SBATCH --time=2:00:00
#SBATCH --mem=32G
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:h200:2
#SBATCH --signal=B:USR1@300
#SBATCH --no-requeue
#SBATCH --exclusive

type module > /dev/null 2>&1 || { path=$PATH; source /etc/profile; PATH=$path:$PATH; }
module load singularity cuda/12.2.2 || exit 1
ulimit -l unlimited
export LEDGER_CONTAINER_COMMAND=/opt/apptainer/bin/apptainer
export LEDGER_SCRATCH="/local/$USER"

trap 'kill -USR1 "$task"' USR1
trap : TERM
'/opt/it'\''s/ledger' task /home/me/ledger/slurm/20261122-033624-toy --array 0 &
task=$!
while wait "$task"; kill -0 "$task" 2> /dev/null; do :; done
# A signal may have ended the last wait just before the task ended.
wait "$task"; code=$?
# Another start can execute what is left.
[ "$code" -ne 75 ] || scontrol requeue "$SLURM_JOB_ID"
exit "$code"
"#;
        assert_eq!(text(&table, 2), expected);
    }

    #[test]
    fn a_script_has_no_options_that_were_not_requested() {
        let text = text(&Table::new(), 0);
        for absent in ["gres", "partition", "module", "time=", "%2\n"] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
        assert!(text.contains("#SBATCH --array=0-2\n") && text.contains("#SBATCH --requeue\n"), "{text}");
        assert!(text.contains("USR1@120") && text.contains("\"${SLURM_TMPDIR:-${TMPDIR:-/tmp}}\""), "{text}");
    }

    #[test]
    fn a_task_that_ends_on_the_warning_signal_keeps_its_exit_code() {
        let dir = tempfile::tempdir().unwrap();
        let task = dir.path().join("ledger");
        std::fs::write(&task, "trap 'exit 7' USR1\n: > $0.up\nwhile :; do sleep 0.01; done\n").unwrap();
        let script = text(&Table::new(), 0);
        let (_, end) = script.split_once("\n\n").unwrap();
        // The task ends before the trap does, so the `wait` that the signal ended does not have the task's code.
        let end = end.replace(r"'/opt/it'\''s/ledger'", &format!("bash {}", task.display()));
        let end = end.replace("trap 'kill -USR1 \"$task\"' USR1", "trap 'kill -USR1 \"$task\"; sleep 0.5' USR1");
        let warn =
            format!("{{ until [ -e {}.up ]; do sleep 0.01; done; sleep 0.1; kill -USR1 $$; }} &\n", task.display());
        let status = std::process::Command::new("bash").args(["-c", &format!("{warn}{end}")]).status().unwrap();
        assert_eq!(status.code(), Some(7));
    }

    #[test]
    fn quoted_words_stay_one_word_in_the_shell() {
        for word in ["", "a b", "it's", "$HOME", "`x`", "a\nb", "*", "~", "plain/path-1.2_x"] {
            let echoed =
                std::process::Command::new("bash").args(["-c", &format!("printf %s {}", quoted(word))]).output();
            assert_eq!(String::from_utf8(echoed.unwrap().stdout).unwrap(), word);
        }
    }
}
