//! A job's facts from Slurm's variables, and the loaded environment modules.

use super::environment;
use ledger_record::{Table, Value};

/// Slurm's variables and the facts they become. Of several variables the first that is set is used.
const VARIABLES: &[(&str, &[&str])] = &[
    ("slurm.job_id", &["SLURM_JOB_ID"]),
    ("slurm.array_job_id", &["SLURM_ARRAY_JOB_ID"]),
    ("slurm.array_task_id", &["SLURM_ARRAY_TASK_ID"]),
    ("slurm.restart_count", &["SLURM_RESTART_COUNT"]),
    ("slurm.cluster", &["SLURM_CLUSTER_NAME"]),
    ("slurm.partition", &["SLURM_JOB_PARTITION"]),
    ("slurm.account", &["SLURM_JOB_ACCOUNT"]),
    ("slurm.qos", &["SLURM_JOB_QOS"]),
    ("slurm.node", &["SLURMD_NODENAME"]),
    // By the node's numbering: with constrained devices `CUDA_VISIBLE_DEVICES` counts from 0 in each job.
    ("slurm.gpus", &["SLURM_STEP_GPUS", "SLURM_JOB_GPUS"]),
];

/// Returns facts about the Slurm job of this process, by dotted name, and `modules`: the loaded modules, in order.
/// Unknown facts are absent.
///
/// [`container::facts`](super::container::facts) has whether jobs can be submitted from here.
pub fn facts() -> Table {
    facts_of(&|name| environment::text_var(name))
}

fn facts_of(var: &dyn Fn(&str) -> Option<String>) -> Table {
    let var = |name: &str| var(name).filter(|value| !value.is_empty());
    let mut table = Table::new();
    for (fact, names) in VARIABLES {
        if let Some(value) = names.iter().find_map(|name| var(name)) {
            table.insert((*fact).to_owned(), value.into());
        }
    }
    // Both implementations, Lmod and Environment Modules, set it.
    if let Some(loaded) = var("LOADEDMODULES") {
        let names: Vec<&str> = loaded.split(':').filter(|name| !name.is_empty()).collect();
        table.insert("modules".to_owned(), Value::from(names));
    }
    table
}

/// The job, array task and restart that this process belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The Slurm job id; each task of an array has its own.
    pub job: String,
    /// The id of the array's job, or of the job itself if it is not an array.
    pub array_job: String,
    /// The task's index in its array.
    pub task: Option<u32>,
    /// How often Slurm has restarted it.
    pub restarts: u32,
    /// Slurm's name of the node.
    pub node: String,
}

/// Returns the place of this process, or `None` outside of a Slurm job.
pub fn place() -> Option<Place> {
    place_of(&|name| environment::text_var(name))
}

fn place_of(var: &dyn Fn(&str) -> Option<String>) -> Option<Place> {
    let var = |name: &str| var(name).filter(|value| !value.is_empty());
    let job = var("SLURM_JOB_ID")?;
    Some(Place {
        array_job: var("SLURM_ARRAY_JOB_ID").unwrap_or_else(|| job.clone()),
        task: var("SLURM_ARRAY_TASK_ID").and_then(|text| text.parse().ok()),
        // Unset before the first restart.
        restarts: var("SLURM_RESTART_COUNT").and_then(|text| text.parse().ok()).unwrap_or(0),
        node: var("SLURMD_NODENAME").unwrap_or_else(super::owner::host_name),
        job,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VARS: &[(&str, &str)] = &[
        ("SLURM_JOB_ID", "43"),
        ("SLURM_ARRAY_JOB_ID", "42"),
        ("SLURM_ARRAY_TASK_ID", "7"),
        ("SLURMD_NODENAME", "n2"),
        ("SLURM_JOB_GPUS", "2,3"),
        ("SLURM_JOB_QOS", ""),
        ("LOADEDMODULES", "singularity/3.11:cuda/12.2.2"),
    ];

    fn var(name: &str) -> Option<String> {
        VARS.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn set_variables_become_facts() {
        let found: Vec<String> = facts_of(&var).into_iter().map(|(name, value)| format!("{name} {value}")).collect();
        let expected = [
            "modules [singularity/3.11, cuda/12.2.2]",
            "slurm.array_job_id 42",
            "slurm.array_task_id 7",
            "slurm.gpus 2,3",
            "slurm.job_id 43",
            "slurm.node n2",
        ];
        assert_eq!(found, expected);
        assert!(facts_of(&|_| None).is_empty());
    }

    #[test]
    fn a_place_is_that_of_a_job_or_of_an_arrays_task() {
        let place = place_of(&var).unwrap();
        assert_eq!(
            (place.job.as_str(), place.array_job.as_str(), place.task, place.restarts),
            ("43", "42", Some(7), 0)
        );
        let alone = place_of(&|name| (name == "SLURM_JOB_ID").then(|| "5".to_owned())).unwrap();
        assert_eq!((alone.array_job.as_str(), alone.task), ("5", None));
        let again = place_of(&|name| if name == "SLURM_RESTART_COUNT" { Some("2".into()) } else { var(name) });
        assert_eq!(again.unwrap().restarts, 2);
        assert_eq!(place_of(&|_| None), None);
    }
}
