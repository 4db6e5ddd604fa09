//! Layer normalisation and its backward.

use super::compile::Program;
use super::run::{Argument, aligned, queue};
use super::{count, fresh, of_format, primitive, ready, room, same_device, single, tensor};
use burn::tensor::{DType, FloatDType, Tensor};
use burn_cubecl::kernel::into_contiguous;

/// Rows of a block, one warp each, as in the kernel.
const WARPS: u32 = 4;
/// The maximum number of partial sums of the gradients of gain and bias.
const STRETCHES: u32 = 128;

/// The results of layer normalisation, with the values that its backward needs.
pub struct Normed {
    /// The output.
    pub y: Tensor<2>,
    /// The mean of each row.
    pub mean: Tensor<1>,
    /// The inverse standard deviation of each row.
    pub inverse: Tensor<1>,
}

/// Normalises each row of x [rows, features] in float32: (x − mean)·inverse·gain + bias, where `inverse` is
/// 1/√(variance + epsilon). The output is rounded to `into`. `None` if the kernels cannot run.
pub fn layer_norm(x: Tensor<2>, gain: &Tensor<1>, bias: &Tensor<1>, epsilon: f64, into: FloatDType) -> Option<Normed> {
    let ([rows, features], into) = (x.dims(), DType::from(into));
    let fit = [gain, bias].into_iter().all(|vector| is_vector(vector, features, &x));
    let name = of_format(into, [c"norm_f32", c"norm_f16", c"norm_bf16"])?;
    let [high, wide] = counted(&x).filter(|_| fit)?;
    let given = [primitive(&x)?, primitive(gain)?, primitive(bias)?];
    drop(x);
    let [x, gain, bias] = given.map(into_contiguous);
    let y = if into == DType::F32 { room(&x) } else { fresh(&x, [rows, features], into) };
    let [mean, inverse] = [(); 2].map(|()| fresh(&x, [rows], DType::F32));
    let buffers = [&x, &gain, &bias, &y, &mean, &inverse].map(|tensor| &tensor.handle);
    queue(Program::Norm, &x, &buffers, move |places, card| {
        let packed = aligned(&places[..4], 16) && wide.is_multiple_of(4);
        let mut arguments: Vec<_> = places.iter().map(|place| Argument::Address(*place)).collect();
        arguments.extend([Argument::U32(high), Argument::U32(wide), Argument::F32(single(epsilon))]);
        arguments.push(Argument::U32(packed.into()));
        card.launch(name, [high.div_ceil(WARPS), 1], [32 * WARPS, 1], &arguments)
    });
    Some(Normed { y: tensor(y), mean: tensor(mean), inverse: tensor(inverse) })
}

/// Returns the gradients of x, gain and bias from that of the output, `dy`, which has the output's format; all others
/// are in float32. `None` if the kernels cannot run.
pub fn layer_norm_back(
    x: Tensor<2>,
    dy: Tensor<2>,
    gain: &Tensor<1>,
    mean: &Tensor<1>,
    inverse: &Tensor<1>,
) -> Option<(Tensor<2>, Tensor<1>, Tensor<1>)> {
    let [rows, features] = x.dims();
    let per_row = [mean, inverse].into_iter().all(|vector| is_vector(vector, rows, &x));
    let fit = per_row && is_vector(gain, features, &x) && dy.dims() == x.dims() && same_device(&dy, &x);
    let name = of_format(dy.dtype(), [c"norm_back_f32", c"norm_back_f16", c"norm_back_bf16"])?;
    let part = of_format(dy.dtype(), [c"norm_parts_f32", c"norm_parts_f16", c"norm_parts_bf16"])?;
    let [high, wide] = counted(&x).filter(|_| fit)?;
    let given = [primitive(&x)?, primitive(&dy)?, primitive(gain)?, primitive(mean)?, primitive(inverse)?];
    drop((x, dy));
    // A multiple of the rows that a block reads at a time.
    let tall = high.div_ceil(STRETCHES).next_multiple_of(8);
    let stretches = high.div_ceil(tall);
    let [x, dy, gain, mean, inverse] = given.map(into_contiguous);
    let dx = room(&x);
    let [dgain, dbias] = [(); 2].map(|()| fresh(&x, [features], DType::F32));
    let parts = usize::try_from(stretches).map_or(rows, |stretches| stretches);
    let parts = fresh(&x, [2, parts, features], DType::F32);
    let buffers = [&x, &dy, &gain, &mean, &inverse, &dx, &parts, &dgain, &dbias].map(|tensor| &tensor.handle);
    queue(Program::Norm, &x, &buffers, move |places, card| {
        let [x, dy, gain, mean, inverse, dx, parts, dgain, dbias] = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|i| places[i]);
        let at = Argument::Address;
        // This kernel reads x, which the gradient may overwrite.
        let shape = [Argument::U32(high), Argument::U32(wide)];
        let [rows, columns] = shape;
        let arguments = [at(x), at(dy), at(mean), at(inverse), at(parts), rows, columns, Argument::U32(tall)];
        card.launch(part, [wide.div_ceil(32), stretches], [32, 8], &arguments)?;
        let arguments = [at(parts), at(dgain), at(dbias), Argument::U32(stretches), Argument::U32(wide)];
        card.launch(c"norm_total", [wide.div_ceil(32), 2], [32, 8], &arguments)?;
        let packed = aligned(&[x, dy, gain, dx], 16) && wide.is_multiple_of(4);
        let shape = [Argument::U32(high), Argument::U32(wide), Argument::U32(packed.into())];
        let arguments: Vec<_> = [x, dy, gain, mean, inverse, dx].map(at).into_iter().chain(shape).collect();
        card.launch(name, [high.div_ceil(WARPS), 1], [32 * WARPS, 1], &arguments)
    });
    Some((tensor(dx), tensor(dgain), tensor(dbias)))
}

/// Returns the shape in the kernels' type, or `None` if they cannot read the tensor.
fn counted(x: &Tensor<2>) -> Option<[u32; 2]> {
    let [rows, features] = x.dims();
    let (rows, features) = (count(rows)?, count(features)?);
    let fits = rows > 0 && features > 0 && features < u32::MAX / 2 && x.dtype() == DType::F32;
    (fits && ready(Program::Norm, x)).then_some([rows, features])
}

fn is_vector(vector: &Tensor<1>, len: usize, like: &Tensor<2>) -> bool {
    vector.dims() == [len] && vector.dtype() == DType::F32 && same_device(vector, like)
}
