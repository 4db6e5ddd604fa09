//! The places of a ledger's submissions, and the known environments of a site's nodes.

use super::fields::text_of;
use super::folder::{DIGITS, PARTS, names};
use super::{ClusterError, Folder, io_error};
use crate::host::{files, owner};
use crate::record::{Digest, Part, Run};
use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A file in the ledger's `slurm` folder: the list of other places with submissions.
const ELSEWHERE: &str = "elsewhere";
/// A file in the ledger's `slurm` folder: the host in the name of this ledger's folder elsewhere.
const HOST: &str = "host";
/// The subfolder with the known environments of the site's nodes.
const SURROUNDINGS: &str = "surroundings";

/// The places of a ledger's submissions.
#[derive(Clone, Debug)]
pub struct Spool {
    /// The folder for new submissions.
    root: PathBuf,
    /// The ledger's own `slurm` folder, with the list of other places.
    home: PathBuf,
}

impl Spool {
    /// Returns the spool of the ledger in that folder. New submissions are made in its `slurm/`, or in this ledger's
    /// own folder under `elsewhere`. Several ledgers may share `elsewhere`, and none may import the submissions of
    /// another.
    pub fn of(ledger: &Path, elsewhere: Option<&Path>) -> Self {
        let home = ledger.join("slurm");
        let root = elsewhere.map_or_else(|| home.clone(), |place| place.join(own_folder(ledger, &naming_host(&home))));
        Self { root, home }
    }

    /// Returns the spool that contains a submission, as far as a node needs it.
    pub fn around(folder: &Folder) -> Self {
        let root = folder.dir().parent().unwrap_or(Path::new("/")).to_owned();
        Self { home: root.clone(), root }
    }

    fn roots(&self) -> Vec<PathBuf> {
        let elsewhere = std::fs::read_to_string(self.home.join(ELSEWHERE)).unwrap_or_default();
        let mut roots = vec![self.home.clone()];
        roots.extend(elsewhere.lines().map(PathBuf::from));
        roots
    }

    /// Records the place of new submissions, so that other commands, also on other hosts, find them.
    fn list_root(&self) -> Result<(), ClusterError> {
        let mut roots = self.roots();
        if self.root == self.home {
            return Ok(());
        }
        files::private_folder(&self.home).map_err(io_error("make the folder", &self.home))?;
        let host = self.home.join(HOST);
        if !host.exists() {
            files::write_whole(&host, naming_host(&self.home).as_bytes())?;
        }
        if roots.contains(&self.root) {
            return Ok(());
        }
        roots.push(self.root.clone());
        let lines: String = roots[1..].iter().map(|root| format!("{}\n", root.display())).collect();
        Ok(files::write_whole(&self.home.join(ELSEWHERE), lines.as_bytes())?)
    }

    /// Returns the folder of a submission, existing or not.
    pub fn folder(&self, name: &str) -> Folder {
        Folder::at(self.root.join(name))
    }

    /// Makes the folder of a submission. If the name exists, a number is appended.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make(&self, name: &str) -> Result<Folder, ClusterError> {
        files::private_folder(&self.root).map_err(io_error("make the folder", &self.root))?;
        self.list_root()?;
        let names = std::iter::once(name.to_owned()).chain((2..1000).map(|number| format!("{name}-{number}")));
        for name in names {
            let folder = self.folder(&name);
            let make = |path: &Path| DirBuilder::new().mode(0o700).create(path);
            match make(folder.dir()) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io_error("make the folder", folder.dir())(error)),
                Ok(()) => {
                    for part in PARTS {
                        let path = folder.dir().join(part);
                        make(&path).map_err(io_error("make the folder", &path))?;
                    }
                    return Ok(folder);
                }
            }
        }
        Err(ClusterError::Unknown { text: name.to_owned(), hint: " (too many have that name)".to_owned() })
    }

    /// Returns every submission, oldest first, without those that were never written completely.
    ///
    /// # Errors
    /// If a folder cannot be listed. A missing folder has no submissions.
    pub fn all(&self) -> Result<Vec<Folder>, ClusterError> {
        let mut folders = Vec::new();
        for root in self.roots() {
            folders.extend(names(&root)?.into_iter().map(|name| Folder::at(root.join(name))));
        }
        // Submissions that cannot be inspected now are kept, and reading them later reports the error.
        folders.retain(|folder| match folder.dir().join("submission.json").metadata() {
            Ok(metadata) => metadata.is_file(),
            Err(error) => !matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory),
        });
        // Names begin with the time of submission.
        folders.sort_by_key(Folder::name);
        Ok(folders)
    }

    /// Returns the submissions that are not closed or have new results, oldest first.
    ///
    /// # Errors
    /// If a folder cannot be listed.
    pub fn open(&self) -> Result<Vec<Folder>, ClusterError> {
        let mut open = Vec::new();
        for folder in self.all()? {
            // A node that seemed dead may deliver results after the submission was closed.
            if !folder.is_closed() || folder.has_arrivals()? {
                open.push(folder);
            }
        }
        Ok(open)
    }

    /// Records the environment of a kind of node: the parts of a run's identity that the node determines.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn remember(&self, kind: &str, run: &Run) -> Result<(), ClusterError> {
        let dir = self.root.join(SURROUNDINGS);
        let path = dir.join(surroundings(kind, run));
        if path.exists() {
            return Ok(());
        }
        files::private_folder(&dir).map_err(io_error("make the folder", &dir))?;
        let part = |part: Part| (part.name(), run.parts.value(part));
        let [cuda, driver, device] = [Part::Cuda, Part::Driver, Part::Device].map(part);
        let text = text_of([("kind", kind.into()), cuda, driver, device]);
        Ok(files::write_whole(&path, text.as_bytes())?)
    }

    /// Returns the names of all recorded environments, as [`surroundings`] makes them.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub(super) fn remembered(&self) -> Result<BTreeSet<String>, ClusterError> {
        let mut roots = self.roots();
        roots.push(self.root.clone());
        let mut remembered = BTreeSet::new();
        for root in roots {
            remembered.extend(names(&root.join(SURROUNDINGS))?);
        }
        Ok(remembered)
    }

    /// Finds a submission by the id of one of its jobs, its name, or a unique part of its name.
    ///
    /// # Errors
    /// If none or several fit.
    pub fn find(&self, text: &str) -> Result<Folder, ClusterError> {
        let all = self.all()?;
        let job = text.split(['_', '.']).next().unwrap_or(text);
        if !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit()) {
            let path = format!("jobs/{job}.json");
            // Job ids of two clusters may coincide; the newest submission is the likeliest.
            if let Some(found) = all.iter().rev().find(|folder| folder.dir().join(&path).is_file()) {
                return Ok(found.clone());
            }
        }
        if let Some(found) = all.iter().find(|folder| folder.name() == text) {
            return Ok(found.clone());
        }
        let mut fitting: Vec<&Folder> = all.iter().filter(|folder| folder.name().contains(text)).collect();
        let hint = match (fitting.len(), all.last()) {
            (1, _) => return Ok(fitting.remove(0).clone()),
            (0, None) => " (nothing was submitted from this ledger)".to_owned(),
            (0, Some(newest)) => format!(" (the newest is {})", newest.name()),
            (_, _) => {
                let names: Vec<String> = fitting.iter().map(|folder| folder.name()).collect();
                format!(": it may be {} (give more of it)", names.join(", "))
            }
        };
        Err(ClusterError::Unknown { text: text.to_owned(), hint })
    }
}

/// Returns the host in the name of a ledger's folder elsewhere: the host that made the folder first, on whichever login
/// node the command runs.
fn naming_host(home: &Path) -> String {
    let kept = std::fs::read_to_string(home.join(HOST)).unwrap_or_default();
    if kept.is_empty() { owner::host_name() } else { kept }
}

/// Returns the name of a ledger's folder among those of other ledgers. The host is part of it, because hosts may have
/// different ledgers under the same path.
fn own_folder(ledger: &Path, host: &str) -> String {
    let path = ledger.canonicalize().unwrap_or_else(|_| ledger.to_owned());
    let pieces = [host.as_bytes().to_vec(), path.into_os_string().into_encoded_bytes()];
    let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
    format!("ledger-{}", Digest::of_pieces("ledger spool v1", &pieces).prefix(8))
}

/// Returns the file name for a run's environment on that kind of machine.
pub(super) fn surroundings(kind: &str, run: &Run) -> String {
    let parts = [Part::Cuda, Part::Driver, Part::Device].map(|part| run.parts.digest(part));
    let pieces: Vec<&[u8]> = parts.iter().map(|digest| digest.0.as_slice()).collect();
    let (kind, parts) = (Digest::of(kind.as_bytes()), Digest::of_pieces("ledger surroundings v1", &pieces));
    format!("{}-{}.json", kind.prefix(DIGITS), parts.prefix(DIGITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Submitted;
    use crate::record::Parts;

    fn finished(spool: &Spool, name: &str) -> Folder {
        let folder = spool.make(name).unwrap();
        folder.write("submission.json", b"{}").unwrap();
        folder
    }

    #[test]
    fn submissions_are_found_by_name_part_of_name_or_job() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = dir.path().join("ledger");
        let here = Spool::of(&ledger, None);
        assert!(here.all().unwrap().is_empty());
        let unknown = here.find("x").unwrap_err().to_string();
        assert_eq!(unknown, "no submission is called `x` (nothing was submitted from this ledger)");
        let bert = finished(&here, "1-bert");
        let again = finished(&here, "1-bert");
        assert_eq!(again.name(), "1-bert-2");
        let elsewhere = Spool::of(&ledger, Some(&dir.path().join("scratch")));
        let gpt = finished(&elsewhere, "0-gpt");
        elsewhere.make("3-unfinished").unwrap();
        let names: Vec<String> = here.all().unwrap().iter().map(Folder::name).collect();
        assert_eq!(names, ["0-gpt", "1-bert", "1-bert-2"], "those elsewhere too, but none without a record");
        assert_eq!(here.find("gpt").unwrap(), gpt);
        assert_eq!(here.find("1-bert").unwrap(), bert, "a whole name counts before a part of another");
        assert!(here.find("bert").unwrap_err().to_string().contains("it may be 1-bert, 1-bert-2"));
        let job = Submitted { job: "42".to_owned(), array: 0, tasks: vec![0], unix_ms: 1 };
        gpt.add_job(&job).unwrap();
        assert_eq!((here.find("42").unwrap(), here.find("42_7").unwrap()), (gpt.clone(), gpt.clone()));
        again.add_job(&job).unwrap();
        assert_eq!(here.find("42").unwrap(), again, "the newest, of two clusters");
        gpt.close(true).unwrap();
        assert_eq!((here.open().unwrap().len(), here.all().unwrap().len()), (2, 3));
        gpt.close(false).unwrap();
        assert_eq!(here.open().unwrap().len(), 3);
    }

    #[test]
    fn a_closed_submission_with_new_results_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::of(dir.path(), None);
        let folder = finished(&spool, "s");
        folder.close(true).unwrap();
        for late in ["out/0123-4567.finished.ledger", "journals/7_0-0-0123-4567.journal"] {
            assert_eq!(spool.open().unwrap(), []);
            folder.write(late, b"").unwrap();
            assert_eq!(spool.open().unwrap(), std::slice::from_ref(&folder), "{late}");
            std::fs::remove_file(folder.dir().join(late)).unwrap();
        }
        folder.write("out/0123-4567.finished.collected", b"").unwrap();
        assert_eq!(spool.open().unwrap(), []);
    }

    #[test]
    fn ledgers_that_share_a_place_do_not_see_each_others_submissions() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("scratch");
        let of = |name: &str| Spool::of(&dir.path().join(name), Some(&place));
        let (one, other) = (finished(&of("one"), "s"), finished(&of("other"), "s"));
        assert!(one.dir().starts_with(&place) && other.dir().starts_with(&place) && one != other);
        for (name, own) in [("one", one), ("other", other)] {
            let later = Spool::of(&dir.path().join(name), None);
            assert_eq!((of(name).all().unwrap(), later.all().unwrap()), (vec![own.clone()], vec![own]), "{name}");
        }
    }

    #[test]
    fn a_ledgers_folder_elsewhere_is_the_same_from_every_host() {
        let dir = tempfile::tempdir().unwrap();
        let (ledger, place) = (dir.path().join("ledger"), dir.path().join("scratch"));
        let here = || Spool::of(&ledger, Some(&place));
        let first = here().make("s").unwrap();
        assert_eq!(std::fs::read_to_string(ledger.join("slurm").join(HOST)).unwrap(), owner::host_name());
        assert_eq!(here().make("t").unwrap().dir().parent(), first.dir().parent());
        // As if another login node had made the first one.
        std::fs::write(ledger.join("slurm").join(HOST), "login2").unwrap();
        let there = here().make("u").unwrap();
        assert_eq!(there.dir().parent(), Some(place.join(own_folder(&ledger, "login2")).as_path()));
        assert_ne!(there.dir().parent(), first.dir().parent());
        assert_eq!(std::fs::read_to_string(ledger.join("slurm").join(HOST)).unwrap(), "login2", "it stays");
        // Environments recorded through either folder are known.
        for folder in [&first, &there] {
            Spool::around(folder).remember(&folder.name(), &run("580", 1)).unwrap();
        }
        for spool in [here(), Spool::of(&ledger, None)] {
            assert_eq!(spool.remembered().unwrap().len(), 2);
        }
    }

    #[test]
    fn folders_of_a_submission_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let folder = Spool::of(dir.path(), None).make("s").unwrap();
        for path in [folder.dir().to_owned(), folder.dir().join("logs"), folder.dir().join("out")] {
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700, "{}", path.display());
        }
    }

    fn run(driver: &str, seed: u64) -> Run {
        Run::new(Parts { driver: driver.into(), seed, ..Parts::sample() })
    }

    #[test]
    fn environments_of_nodes_are_recorded_by_kind() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::of(dir.path(), None);
        let folder = spool.make("s").unwrap();
        for _ in 0..2 {
            Spool::around(&folder).remember("c/gpu", &run("580", 1)).unwrap();
        }
        let known = spool.remembered().unwrap();
        assert_eq!(known.len(), 1);
        assert!(known.contains(&surroundings("c/gpu", &run("580", 2))), "of every run there");
        assert!(!known.contains(&surroundings("c/gpu", &run("590", 1))));
        assert!(!known.contains(&surroundings("c/cpu", &run("580", 1))));
    }
}
