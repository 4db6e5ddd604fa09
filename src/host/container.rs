//! Whether this process runs in a container, and which programs could start one.

use super::environment;
use ledger_record::{Table, Value};
use std::fs;
use std::path::{Path, PathBuf};

/// The programs that can start a container, in order of preference.
pub const TOOLS: [&str; 4] = ["apptainer", "singularity", "podman", "docker"];

/// Returns facts about the containment of this process, by dotted name. Unknown facts are absent.
///
/// - `container.kind`: `apptainer`, `singularity`, `docker`, `podman`, `kubernetes`, or the value of the variable
///   `container`;
/// - `container.image`: the image as the container itself names it. For Apptainer it is a path **on the host**, which
///   may not be visible inside. It is a temporary directory if the image had to be unpacked. Therefore take the image's
///   digest outside, before the start;
/// - `container.name`: the image's file name, for Apptainer;
/// - `container.tools`: the programs on `PATH` that can start a container;
/// - `slurm.sbatch`: whether jobs can be submitted from here.
pub fn facts() -> Table {
    facts_of(Path::new("/"), &|name| environment::text_var(name), &environment::which)
}

fn facts_of(root: &Path, var: &dyn Fn(&str) -> Option<String>, which: &dyn Fn(&str) -> Option<PathBuf>) -> Table {
    let var = |name: &str| var(name).filter(|value| !value.is_empty());
    let mut table = Table::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            table.insert(name.to_owned(), value);
        }
    };
    let podman = fs::read_to_string(root.join("run/.containerenv")).ok();
    let kind = if var("APPTAINER_CONTAINER").is_some() {
        Some("apptainer".to_owned())
    } else if var("SINGULARITY_CONTAINER").is_some() || root.join(".singularity.d").is_dir() {
        Some("singularity".to_owned())
    } else if podman.is_some() {
        Some("podman".to_owned())
    } else if root.join(".dockerenv").exists() {
        Some("docker".to_owned())
    } else if var("KUBERNETES_SERVICE_HOST").is_some() {
        Some("kubernetes".to_owned())
    } else {
        var("container")
    };
    put("container.kind", kind.map(Value::from));
    let image = var("APPTAINER_CONTAINER")
        .or_else(|| var("SINGULARITY_CONTAINER"))
        .or_else(|| podman.as_deref().and_then(podman_image));
    put("container.image", image.map(|image| environment::without_credentials(&image).into()));
    put("container.name", var("APPTAINER_NAME").or_else(|| var("SINGULARITY_NAME")).map(Value::from));
    let tools: Vec<&str> = TOOLS.into_iter().filter(|name| which(name).is_some()).collect();
    put("container.tools", (!tools.is_empty()).then(|| tools.into()));
    put("slurm.sbatch", which("sbatch").map(|_| true.into()));
    table
}

/// Returns the image from `/run/.containerenv`, which has lines such as `image="docker.io/library/debian:12"`.
fn podman_image(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("image="))?.trim().trim_matches('"');
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(root: &Path, vars: &[(&str, &str)], tools: &[&str]) -> Vec<(String, String)> {
        let var = |name: &str| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let which = |name: &str| tools.contains(&name).then(|| PathBuf::from(name));
        facts_of(root, &var, &which).into_iter().map(|(name, value)| (name, value.to_string())).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_bare_host_has_no_facts() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(facts(root.path(), &[("APPTAINER_CONTAINER", "")], &[]), []);
    }

    #[test]
    fn containers_are_recognised_by_their_marks() {
        let root = tempfile::tempdir().unwrap();
        let image = "/images/train.sif";
        let vars = [("APPTAINER_CONTAINER", image), ("SINGULARITY_CONTAINER", image), ("APPTAINER_NAME", "train.sif")];
        let expected = [("container.image", image), ("container.kind", "apptainer"), ("container.name", "train.sif")];
        assert_eq!(facts(root.path(), &vars, &[]), pairs(&expected));
        assert_eq!(facts(root.path(), &[("container", "lxc")], &[]), pairs(&[("container.kind", "lxc")]));
        fs::write(root.path().join(".dockerenv"), "").unwrap();
        assert_eq!(facts(root.path(), &[], &[]), pairs(&[("container.kind", "docker")]));
        fs::create_dir(root.path().join("run")).unwrap();
        fs::write(root.path().join("run/.containerenv"), "engine=\"podman-4\"\nimage=\"d.io/debian:12\"\n").unwrap();
        let expected = pairs(&[("container.image", "d.io/debian:12"), ("container.kind", "podman")]);
        assert_eq!(facts(root.path(), &[], &[]), expected);
    }

    #[test]
    fn installed_tools_become_facts() {
        let root = tempfile::tempdir().unwrap();
        let found = facts(root.path(), &[], &["sbatch", "docker", "apptainer"]);
        let expected = pairs(&[("container.tools", "[apptainer, docker]"), ("slurm.sbatch", "true")]);
        assert_eq!(found, expected);
    }
}
