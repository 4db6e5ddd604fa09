use super::*;
use burn::tensor::{Device, TensorData};
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;

/// Builds a library with NCCL's functions, which counts its calls in `version`.
fn build(path: &Path, source: &str) {
    let c = path.with_extension("c");
    std::fs::write(&c, source).expect("a temporary folder");
    assert!(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(path).arg(&c).status().expect("cc").success());
}

const WHOLE: &str = "
int ncclGetVersion(int *v) { *v = 22803; return 0; }
int ncclCommInitAll(void **c, int n, const int *d) { for (int i = 0; i < n; i++) c[i] = (void *)(long)(100 + d[i]); return n == 3 ? 5 : 0; }
int ncclCommAbort(void *c) { return 0; }
int ncclCommGetAsyncError(void *c, int *e) { *e = c == (void *)101 ? 6 : 0; return 0; }
int ncclGroupStart(void) { return 0; }
int ncclGroupEnd(void) { return 0; }
int ncclAllReduce(const void *a, void *b, unsigned long n, int t, int o, void *c, void *s) { return t == 7 && o == 0 ? 0 : 4; }
int ncclBroadcast(const void *a, void *b, unsigned long n, int t, int r, void *c, void *s) { return t == 7 && r == 0 ? 0 : 4; }
";

#[test]
fn a_library_with_every_function_is_loaded_and_called() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (part, whole) = (folder.path().join("libpart.so"), folder.path().join("libwhole.so"));
    build(&part, "int ncclGetVersion(int *v) { *v = 1; return 0; }");
    build(&whole, WHOLE);
    let names = [part.to_str().expect("text"), whole.to_str().expect("text")];
    assert!(first(&names[..1]).is_none(), "functions are missing");
    let nccl = first(&names).expect("the second has all of them");
    let connected = connect(&nccl, 2).expect("it connects two");
    assert_eq!(connected.iter().map(|one| (one.comm, one.card)).collect::<Vec<_>>(), [(100, 0), (101, 1)]);
    assert_eq!(connect(&nccl, 3).expect_err("and no three"), 5);
    assert_eq!(meaning(5), "an invalid use (error 5)");
}

#[test]
fn tensors_on_other_devices_are_not_summed() {
    let tensor = Tensor::<1>::from_data(TensorData::from([1.0_f32].as_slice()), &Device::flex());
    assert!(Communicator { comm: 0, card: 0, copies: None }.all_reduce(vec![tensor]).is_none(), "not on a card");
}

#[test]
fn nccl_errors_name_the_fix() {
    assert!(NcclError::Absent.to_string().starts_with("NCCL is missing: neither libnccl.so.2 nor libnccl.so"));
    let failed = NcclError::Failed { ranks: 4, reason: meaning(1) };
    assert_eq!(
        failed.to_string(),
        "NCCL cannot connect 4 GPUs: a call of CUDA failed (error 1) (NCCL_DEBUG=INFO makes it say more)"
    );
}

/// Returns values that differ between ranks, so that a missing rank shows. They are integers, so their sum is exact in
/// any order.
fn values(rank: usize, len: usize) -> Vec<f32> {
    let rank = u16::try_from(rank).expect("small");
    (0_u16..1000).cycle().take(len).map(|n| f32::from(n) * f32::from(rank + 1) + f32::from(rank)).collect()
}

#[test]
#[ignore = "needs two GPUs"]
fn cards_sum_and_send_behind_other_work_on_gpu() {
    let ranks = Device::enumerate(burn::tensor::DeviceType::Cuda).into_iter().count().min(4);
    if ranks < 2 {
        return println!("skipped: it needs two GPUs, and {ranks} is visible");
    }
    let all = communicators(ranks, Duration::from_secs(120)).expect("NCCL connects");
    let lengths = [1, 64, 1_000_003];
    let together = Barrier::new(ranks);
    std::thread::scope(|scope| {
        for (rank, communicator) in all.iter().copied().enumerate() {
            let together = &together;
            scope.spawn(move || {
                let device = Device::cuda(rank);
                let upload =
                    |len: usize| Tensor::<1>::from_data(TensorData::from(values(rank, len).as_slice()), &device);
                let read = |tensor: Tensor<1>| tensor.try_into_vec_as::<f32>().expect("readable");
                for _ in 0..3 {
                    // The values are still being computed when the sum is queued.
                    let given = lengths.map(|len| upload(len) * 2.0).to_vec();
                    together.wait();
                    let summed = communicator.all_reduce(given).expect("on a card");
                    for (summed, len) in summed.into_iter().zip(lengths) {
                        let mut expected = vec![0.0_f32; len];
                        for rank in 0..ranks {
                            expected.iter_mut().zip(values(rank, len)).for_each(|(sum, value)| *sum += 2.0 * value);
                        }
                        assert!(read(summed + 1.0) == expected.iter().map(|sum| sum + 1.0).collect::<Vec<_>>());
                    }
                }
                let held = upload(1000);
                together.wait();
                let sent = communicator.broadcast(vec![held.clone()]).expect("on a card").remove(0);
                assert!(read(sent) == values(0, 1000));
                assert!(read(held) == values(rank, 1000), "what somebody else holds stays");
                assert_eq!((crate::cuda::fault_on(rank), communicator.fault()), (None, None));
            });
        }
    });
}

/// Tests gradients that are views of one tensor, like those of a projection's three biases. Their memory must not be
/// reused before the communication stream has read it.
#[test]
#[ignore = "needs two GPUs"]
fn sums_of_views_keep_what_they_are_made_of_on_gpu() {
    const LONG: usize = 16 << 20;
    const VIEW: usize = 768;
    const BUCKETS: usize = 12;
    let ranks = Device::enumerate(burn::tensor::DeviceType::Cuda).into_iter().count().min(4);
    if ranks < 2 {
        return println!("skipped: it needs two GPUs, and {ranks} is visible");
    }
    let all = communicators(ranks, Duration::from_secs(120)).expect("NCCL connects");
    let together = Barrier::new(ranks);
    let work = |rank: usize| {
        let device = Device::cuda(rank);
        let upload = |values: &[f32]| Tensor::<1>::from_data(TensorData::from(values), &device);
        // The first bucket is long, so that the others wait for it in the communication stream.
        let lengths: Vec<usize> = std::iter::once(LONG).chain((1..BUCKETS).map(|_| 3 * VIEW)).collect();
        let memory = Tensor::<1>::empty([all[rank].room(&lengths)], (&device, DType::F32));
        for round in 0..8_u16 {
            let of = |bucket: usize| values(rank + bucket + usize::from(round), 3 * VIEW);
            let mut gradients = Vec::new();
            for bucket in (1..BUCKETS).rev() {
                let three = upload(&of(bucket));
                gradients.extend((0..3).map(|view| three.clone().slice(view * VIEW..(view + 1) * VIEW)));
            }
            gradients.push(Tensor::ones([LONG], &device));
            let many = gradients.len();
            let long = BucketPlan { tensors: many - 1..many, places: vec![(0, LONG)], len: LONG, mark: None };
            let short = |bucket: usize| {
                let end = many - 1 - 3 * (bucket - 1);
                let places = (0..3).map(|view| (view * VIEW, VIEW)).collect();
                BucketPlan { tensors: end - 3..end, places, len: 3 * VIEW, mark: None }
            };
            let plans = std::iter::once(long).chain((1..BUCKETS).map(short)).collect();
            together.wait();
            let sums = all[rank].sum_overlapped(gradients, (plans, None), memory.clone(), 1.0);
            let mut found = Vec::new();
            for sum in sums {
                let taken = sum.take();
                // Other work allocates memory immediately.
                drop((0..4).map(|_| Tensor::<1>::zeros([3 * VIEW], &device) + 7.0).collect::<Vec<_>>());
                found.push(taken);
            }
            for (bucket, sums) in found.into_iter().enumerate().skip(1) {
                let sums: Vec<f32> =
                    sums.into_iter().flat_map(|sum| sum.try_into_vec_as::<f32>().expect("readable")).collect();
                let mut expected = vec![0.0_f32; 3 * VIEW];
                for other in 0..ranks {
                    let theirs = values(other + bucket + usize::from(round), 3 * VIEW);
                    expected.iter_mut().zip(theirs).for_each(|(sum, value)| *sum += value);
                }
                assert!(sums == expected, "bucket {bucket} of round {round} on rank {rank}");
            }
        }
        assert_eq!((crate::cuda::fault_on(rank), all[rank].fault()), (None, None));
    };
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let work = &work;
            scope.spawn(move || work(rank));
        }
    });
}
