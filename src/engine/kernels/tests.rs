use super::*;
use crate::record::Parts;
use std::sync::mpsc;

fn run(driver: &str, gpus: usize) -> Run {
    let cuda: Table = [("nvrtc".to_owned(), "13.0".into()), ("nccl".to_owned(), "2.28.3".into())].into();
    Run::new(Parts {
        program: "trainer".into(),
        cuda: cuda.into(),
        driver: driver.into(),
        device: vec!["NVIDIA H200"; gpus].into(),
        ..Parts::sample()
    })
}

#[test]
fn the_key_depends_on_the_driver_but_not_on_the_number_of_gpus() {
    let of = |run: &Run| KernelCache::of(Path::new("/ledger"), run).key;
    assert_eq!(of(&run("580", 1)), of(&run("580", 4)));
    assert_ne!(of(&run("580", 1)), of(&run("581", 1)));
}

#[test]
fn compiled_kernels_are_kept_once_their_shapes_are_tuned() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, run) = (KernelCache::of(dir.path(), &run("580", 1)), run("580", 1));
    let keeps =
        |in_use: &InUse| fs::read_to_string(in_use.workplace.join(CONFIG_FILE)).unwrap().contains("cache = true");
    let first = cache.clone().open(&run, &0_u32).unwrap().unwrap();
    assert!(!first.tuned && !keeps(&first));
    assert!(first.warning(&cache.facts("after")).is_some(), "it was tuned meanwhile");
    first.remember().unwrap();
    let second = cache.clone().open(&run, &0_u32).unwrap().unwrap();
    assert!(second.tuned && keeps(&second));
    assert_eq!(second.warning(&cache.facts("after")), None);
    fs::write(cache.dir.join("default.db"), "one more kernel").unwrap();
    assert!(second.warning(&cache.facts("after")).is_some());
}

/// Sends a message each time that a lock is waited for.
struct Waiting(mpsc::Sender<()>);

impl Stop for Waiting {
    fn asked(&self) -> u32 {
        let _ = self.0.send(());
        0
    }
}

#[test]
fn after_a_replacement_a_waiting_run_locks_the_new_folder() {
    for is_replaced in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (cache, run) = (KernelCache::of(dir.path(), &run("580", 1)), run("580", 1));
        files::private_folder(&cache.dir).unwrap();
        let alone = cache.lock_alone().unwrap();
        let (sender, waits) = mpsc::channel();
        let in_use = std::thread::scope(|scope| {
            let opening = scope.spawn(|| cache.clone().open(&run, &Waiting(sender)));
            waits.recv().unwrap();
            fs::rename(&cache.dir, cache.beside("old")).unwrap();
            if is_replaced {
                files::private_folder(&cache.dir).unwrap();
            }
            drop(alone);
            opening.join().unwrap().unwrap().unwrap()
        });
        assert!(in_use.workplace.join(CONFIG_FILE).exists());
        assert!(matches!(cache.lock_alone(), Err(KernelCacheError::Busy(_))), "{is_replaced}");
        drop(in_use);
        assert!(cache.lock_alone().is_ok());
    }
}

#[test]
fn kernels_move_from_one_ledger_to_another() {
    let [here, there] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let cache = KernelCache::of(here.path(), &run("580", 1));
    let in_use = cache.clone().open(&run("580", 1), &0_u32).unwrap().unwrap();
    assert_eq!(cache.state().unwrap(), None);
    fs::write(cache.dir.join("default.db"), "kernels").unwrap();
    fs::write(cache.dir.join("default.db-shm"), "shared").unwrap();
    fs::create_dir_all(cache.driver_cache().join("a/b")).unwrap();
    fs::write(cache.driver_cache().join("a/b/index"), "machine code").unwrap();
    assert!(matches!(cache.export(), Err(KernelCacheError::Busy(_))));
    // A process that was just forked has the file open too.
    let _open_elsewhere = in_use._lock.0.try_clone().unwrap();
    drop(in_use);
    let bytes = cache.export().unwrap();
    let moved = KernelCache::import(there.path(), &bytes, false).unwrap();
    assert_eq!((&moved.key, moved.state().unwrap()), (&cache.key, cache.state().unwrap()));
    assert_eq!(fs::read(moved.driver_cache().join("a/b/index")).unwrap(), b"machine code");
    assert!(moved.dir.starts_with(there.path()) && !moved.dir.join("default.db-shm").exists());
    assert_eq!(KernelCache::list(there.path()).unwrap(), std::slice::from_ref(&moved));
    assert_eq!(KernelCache::find(there.path(), &moved.key[..4]).unwrap(), moved);
    assert!(matches!(KernelCache::find(there.path(), "zz"), Err(KernelCacheError::Unknown(_))));
    assert!(matches!(KernelCache::import(there.path(), &bytes, false), Err(KernelCacheError::There(_))));
    KernelCache::import(there.path(), &bytes, true).unwrap();
    // A file and a folder cannot have the same name. The old kernels stay.
    let files = ["a", "a/b"].map(|name| (name.to_owned(), Vec::new())).into();
    let clash = encode_kernels(&Kernels { environment: moved.environment.clone(), files }).unwrap();
    assert!(matches!(KernelCache::import(there.path(), &clash, true), Err(KernelCacheError::Io { .. })));
    assert_eq!(moved.state().unwrap(), cache.state().unwrap());
    let folder = moved.dir.parent().unwrap();
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "nothing is left beside it");
    moved.remove().unwrap();
    assert_eq!(KernelCache::list(there.path()).unwrap(), []);
    let damaged = [&bytes[..bytes.len() - 1], b"!"].concat();
    assert!(matches!(KernelCache::import(there.path(), &damaged, false), Err(KernelCacheError::Damaged(_))));
}
