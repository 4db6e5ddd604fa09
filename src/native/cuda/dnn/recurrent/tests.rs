use super::describe::{rows, stack, states};
use super::plan::Kind;
use super::weights::{Place, bytes};
use super::*;
use crate::cuda::dnn::library;
use crate::cuda::plan::Format;
use burn::tensor::Device;

fn kind(unit: Unit, format: Format) -> Kind {
    Kind { card: 0, unit, layers: 2, format, tf32: false, rows: 3, width: 5, inputs: 10, hidden: 12 }
}

/// The offset of each parameter in values, as cuDNN 9.19 and 9.28 report it.
#[test]
fn places_of_weights_are_those_of_cudnn() {
    let starts = |unit| places(unit, 2, [10, 12]).iter().map(|place| place.start).collect::<Vec<_>>();
    assert_eq!(starts(Unit::Lstm), [0, 480, 2208, 2256, 1056, 1632, 2304, 2352]);
    assert_eq!(starts(Unit::Gru), [0, 360, 1656, 1692, 792, 1224, 1728, 1764]);
    let one = places(Unit::Gru, 1, [10, 12]);
    assert_eq!(one[0], Place { start: 0, rows: 36, columns: 10 });
    assert_eq!(one[1], Place { start: 360, rows: 36, columns: 12 });
    assert_eq!([one[2], one[3]].map(|place| (place.start, place.columns)), [(792, 1), (828, 1)]);
}

#[test]
fn recurrent_layers_refuse_host_tensors() {
    let device = Device::flex();
    let parameters = [480, 576, 48, 48].map(|length| Tensor::<1>::zeros([length], &device));
    let how = Stack { unit: Unit::Lstm, layers: 1, width: 5, format: FloatDType::F32, tf32: true };
    assert!(Recurrent::of(how, &Tensor::zeros([15, 10], &device), &parameters).is_none(), "no card is asked for");
}

#[test]
#[ignore = "needs cuDNN"]
fn cudnn_accepts_the_layers() {
    let dnn = library::dnn().unwrap();
    // The query only checks that a handle exists, so no GPU is needed.
    let mut handle = vec![0_u64; 1 << 17];
    let handle = handle.as_mut_ptr().cast();
    for unit in [Unit::Lstm, Unit::Gru] {
        for format in [Format::F32, Format::F16, Format::Bf16] {
            for (layers, inputs, hidden) in [(1, 10, 12), (2, 10, 12), (2, 256, 512), (3, 7, 5)] {
                let kind = Kind { layers, inputs, hidden, ..kind(unit, format) };
                let recurrent = match stack(dnn, handle, kind) {
                    // Supported since 9.13.
                    Err(fault) if format == Format::Bf16 => {
                        println!("{kind:?}: {fault}");
                        continue;
                    }
                    made => made.unwrap(),
                };
                let places = kind.places();
                let values: usize = places.iter().map(|place| place.rows * place.columns).sum();
                let all = bytes(dnn, handle, recurrent, (unit, format), &places).unwrap();
                assert_eq!(all, values * format.bytes(), "{kind:?}");
                let mut swapped = places;
                swapped.swap(0, 1);
                assert!(bytes(dnn, handle, recurrent, (unit, format), &swapped).is_err(), "{kind:?}");
                rows(dnn, kind, inputs).unwrap();
                states(dnn, kind).unwrap();
            }
        }
    }
}
