use super::*;
use crate::cuda::check;
use crate::cuda::fault_on;
use crate::cuda::kernels::Program;
use crate::cuda::library::driver;
use crate::cuda::plan::enter;
use crate::cuda::submit::{bound, flush, submit};
use crate::number::{real_len, single};
use burn::backend::Cuda;
use burn::tensor::{DType, Device, DeviceType, Tensor, TensorData};
use std::ptr::null_mut;

/// Returns values that differ between ranks such that the order of addition affects the sum.
fn value(rank: usize, i: usize) -> f32 {
    let of = |n: usize| single(real_len(n));
    of((i * 37 + rank * 1013) % 997) * 0.1 + of(rank) * 1e5
}

/// The sum over all ranks, in their order.
fn sum(ranks: usize, i: usize) -> f32 {
    (1..ranks).fold(value(0, i), |sum, rank| sum + value(rank, i))
}

/// Simulates the copies on vectors: every rank ends with the sum of all, in the order of the ranks.
#[test]
fn slices_are_copied_summed_and_copied_back() {
    for (ranks, len) in [(2, 640), (2, 64), (3, 1000), (4, 1), (4, 63), (4, 129), (4, 4096 + 7)] {
        let mut buckets: Vec<Vec<f32>> = (0..ranks).map(|rank| (0..len).map(|i| value(rank, i)).collect()).collect();
        let expected: Vec<f32> = (0..len).map(|i| sum(ranks, i)).collect();
        let (slices, each) = (slices(len, ranks), slice(len, ranks));
        assert_eq!(slices.iter().map(|(_, len)| len).sum::<usize>(), len, "{ranks} ranks, {len} values");
        for (rank, (start, mine)) in slices.iter().copied().enumerate() {
            let mut room = vec![0.0; (ranks - 1) * each];
            for other in (0..ranks).filter(|other| *other != rank) {
                let place = slot(rank, other) * each;
                room[place..place + mine].copy_from_slice(&buckets[other][start..start + mine]);
            }
            for i in 0..mine {
                // As in the kernel.
                let of = |other: usize| {
                    if other == rank { buckets[rank][start + i] } else { room[slot(rank, other) * each + i] }
                };
                buckets[rank][start + i] = (1..ranks).fold(of(0), |sum, other| sum + of(other));
            }
        }
        for rank in 0..ranks {
            for (other, (start, len)) in slices.iter().copied().enumerate() {
                let from = buckets[other][start..start + len].to_vec();
                buckets[rank][start..start + len].copy_from_slice(&from);
            }
            assert!(buckets[rank] == expected, "rank {rank} of {ranks}, {len} values");
        }
    }
}

#[test]
fn each_end_has_a_link_to_each_other_one_from_the_next_rank_on() {
    let ends = of(4);
    let links = |rank: usize| {
        let links = ends[rank].links.lock().expect("no panic");
        links.others.iter().map(|link| link.rank).collect::<Vec<_>>()
    };
    assert_eq!([links(0), links(1), links(3)], [vec![1, 2, 3], vec![2, 3, 0], vec![0, 1, 2]]);
    assert_eq!((ends[1].room(1000), ends[1].rank), (3 * 256, 1));
    assert!(of(1)[0].links.lock().expect("no panic").others.is_empty());
}

#[test]
fn a_failed_gpu_ends_the_waits_of_others() {
    let ends = of(2);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ends[0].together(|links, over| links.receive(over)));
        let failed = ends[1].together(|_, _| Err::<(), Fault>(Fault::Absent));
        assert!(matches!(failed, Err(Fault::Absent)));
        let told = waiting.join().expect("no panic").expect_err("nobody speaks");
        assert!(matches!(told, Fault::Gone), "{told}");
    });
    assert!(ends[1].together(|_, _| Ok(())).is_err(), "no sum after it");
}

/// Several ranks share a GPU, which covers all that four GPUs would do except running on four GPUs.
#[test]
#[ignore = "needs two GPUs"]
fn ranks_that_share_cards_sum_in_their_order_on_gpu() {
    let cards = Device::enumerate(DeviceType::Cuda).into_iter().count().min(4);
    if cards < 2 {
        return println!("skipped: it needs two GPUs, and {cards} is visible");
    }
    assert!(peer::all_reach_each_other(cards), "they have no way but through the host");
    for ranks in 2..=4 {
        std::thread::scope(|scope| {
            for end in of(ranks) {
                scope.spawn(move || sums_on(end.rank % cards, &end));
            }
        });
    }
    assert!((0..cards).all(|card| fault_on(card).is_none()));
}

/// A rank's part in the sums of some buckets, repeatedly in the same memory. It continues while others copy.
fn sums_on(card: usize, end: &End) {
    const LENGTHS: [usize; 5] = [4, 252, 1_000, 1 << 20, (3 << 18) + 4];
    let (driver, device) = (driver().expect("a driver"), Device::cuda(card));
    let (values, room) = (LENGTHS.iter().sum::<usize>(), LENGTHS.iter().map(|len| end.room(*len)).max().unwrap_or(0));
    let memory = Tensor::<1>::empty([values + room], (&device, DType::F32));
    let (memory_at, _) = place(&memory);
    let room_at = memory_at + wide(4 * values);
    enter(driver, card).expect("its context");
    let mut stream: Opaque = null_mut();
    // SAFETY: the stream can be written to, and the card's context is current.
    #[expect(unsafe_code, reason = "a function of the CUDA driver")]
    check("cuStreamCreate", unsafe { (driver.stream)(&raw mut stream, 1) }).expect("a stream");
    let launcher = Launcher::of(Program::Bucket, card, stream).expect("kernels");
    for round in 0..5 {
        let given: Vec<f32> = (0..values).map(|i| value(end.rank, i + round)).collect();
        let tensor = Tensor::<1>::from_data(TensorData::from(given.as_slice()), &device);
        let (at, whole) = place(&tensor);
        end.begin(driver, &[stream]).expect("all are there");
        whole.hold(driver, stream).expect("an event");
        peer::copy(driver, memory_at, at, 4 * values, stream).expect("a copy");
        let mut start = memory_at;
        for len in LENGTHS {
            end.sum((driver, &launcher), (start, room_at, len), stream).expect("all are there");
            start += wide(4 * len);
        }
        end.end(driver, stream).expect("all are there");
        peer::copy(driver, at, memory_at, 4 * values, stream).expect("a copy");
        // SAFETY: the stream was made above, in the context of this thread.
        #[expect(unsafe_code, reason = "a function of the CUDA driver")]
        check("cuStreamSynchronize", unsafe { (driver.await_all)(stream) }).expect("the card works");
        let found: Vec<f32> = tensor.try_into_vec_as().expect("readable");
        let wrong = (0..values).find(|i| found[*i].to_bits() != sum(end.ranks, i + round).to_bits());
        assert_eq!(wrong, None, "the first value that is wrong, rank {} of {}, round {round}", end.rank, end.ranks);
    }
    // Others may use the memory until all have copied it.
    end.begin(driver, &[stream]).expect("all are there");
    // SAFETY: as above.
    #[expect(unsafe_code, reason = "a function of the CUDA driver")]
    check("cuStreamSynchronize", unsafe { (driver.await_all)(stream) }).expect("the card works");
}

/// Returns a tensor's address, and the event after which its values are complete.
fn place(tensor: &Tensor<1>) -> (u64, Event) {
    let tensor = tensor.clone().try_into_primitive::<Cuda>().expect("on a card");
    let (send, receive) = channel();
    submit(&tensor.device, vec![bound(&tensor.handle)], move |places, stream| {
        let event = Event::behind(driver().ok_or(Fault::Absent)?, stream)?;
        send.send((places[0], event)).map_err(|_| Fault::Absent)
    });
    flush(&tensor.device);
    receive.recv().expect("the card works")
}
