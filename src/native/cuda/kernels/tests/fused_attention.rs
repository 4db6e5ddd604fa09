use super::*;

/// Computes attention by tensor operations on the host, from queries, keys and values [rows·width, 3·heads·features] in
/// float32. Returns the output and the gradient of the input.
fn reference(qkv: &Tensor<2>, dy: &Tensor<2>, shape: AttentionShape, config: AttentionConfig) -> [Tensor<2>; 2] {
    let AttentionShape { rows, width, heads, features } = shape;
    let apart = |x: Tensor<2>| x.reshape([rows, width, heads, features]).swap_dims(1, 2);
    let joined = |x: Tensor<4>| x.swap_dims(1, 2).reshape([rows * width, heads * features]);
    let [q, k, v] = [0, 1, 2].map(|part| apart(qkv.clone().narrow(1, part * heads * features, heads * features)));
    let scores = q.clone().matmul(k.clone().swap_dims(2, 3)) * 0.125;
    let places = Tensor::<1, Int>::arange(0..i64::try_from(width).expect("small"), &flex());
    let after = places.clone().unsqueeze_dim::<2>(0) - places.unsqueeze_dim::<2>(1);
    let seen = if config.causal { scores + (after.clamp(0, 1).float() * -1.0e30).unsqueeze() } else { scores };
    let p = softmax(seen, 3);
    let dims = [rows, heads, width, width];
    let kept = if config.share > 0.0 { mask(dims, config.key, config.share) } else { Tensor::ones(dims, &flex()) };
    let dropped = p.clone() * kept.clone();
    let dy = apart(dy.clone());
    let slope = dy.clone().matmul(v.clone().swap_dims(2, 3)) * kept;
    let along = (slope.clone() * p.clone()).sum_dim(3);
    let of_scores = p * (slope - along) * 0.125;
    let gradients =
        [of_scores.clone().matmul(k), of_scores.swap_dims(2, 3).matmul(q), dropped.clone().swap_dims(2, 3).matmul(dy)];
    [joined(dropped.matmul(v)), Tensor::cat(gradients.map(joined).to_vec(), 1)]
}

#[test]
#[ignore = "needs a GPU"]
fn fused_attention_on_gpu() {
    for format in [FloatDType::F16, FloatDType::BF16] {
        for [rows, width, heads] in [[1, 1, 1], [2, 64, 2], [3, 33, 2], [2, 100, 3], [1, 257, 2], [2, 512, 1]] {
            for (causal, share) in [(false, 0.0), (true, 0.0), (true, 0.1), (false, 0.3)] {
                let what = format!("{format:?}, {rows} x {width} x {heads}, causal {causal}, dropped {share}");
                let shape = AttentionShape { rows, width, heads, features: 64 };
                let config = AttentionConfig { causal, key: 99, share };
                // The compared values are representable in the format.
                let round = |x: Tensor<2>| x.cast(format);
                let qkv = round(random([rows * width, 3 * heads * 64]) * 2.0);
                let dy = round(random([rows * width, heads * 64]));
                let exact = |x: &Tensor<2>| x.clone().cast(FloatDType::F32);
                let [output, gradient] = reference(&exact(&qkv), &exact(&dy), shape, config);
                let ours = || {
                    let (output, saved) = fused_attention(&moved(&qkv, &card()), shape, config).expect("not refused");
                    let gradient = saved.backward(&moved(&dy, &card())).expect("they fit");
                    [output, gradient]
                };
                let [first, slopes] = ours();
                // Attention weights and their gradients are rounded before they are multiplied.
                near(first.clone(), output, 2.0 * rounding(format), &what);
                for part in 0..3 {
                    // With one place, the gradients of queries and keys are only rounding errors.
                    if width > 1 || part == 2 {
                        let of = |x: &Tensor<2>| x.clone().narrow(1, part * heads * 64, heads * 64);
                        near(of(&slopes), of(&gradient), 2.0 * rounding(format), &format!("{what}, part {part}"));
                    }
                }
                let [again, slopes_again] = ours();
                same(again, first, &what);
                same(slopes_again, slopes, &what);
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn attention_of_other_heads_is_refused_on_gpu() {
    let config = AttentionConfig { causal: true, key: 0, share: 0.0 };
    let shape = |features| AttentionShape { rows: 1, width: 8, heads: 2, features };
    let other = [AttentionShape { heads: 3, ..shape(64) }, AttentionShape { rows: 2, ..shape(64) }];
    let qkv = |features: usize, format| moved(&random([8, 6 * features]).cast(format), &card());
    assert!(fused_attention(&qkv(64, FloatDType::BF16), shape(64), config).is_some());
    assert!(fused_attention(&qkv(32, FloatDType::BF16), shape(32), config).is_none(), "32 features");
    assert!(fused_attention(&qkv(64, FloatDType::F32), shape(64), config).is_none(), "float32");
    for shape in other {
        assert!(fused_attention(&qkv(64, FloatDType::BF16), shape, config).is_none(), "not the tensor's: {shape:?}");
    }
    let (_, saved) = fused_attention(&qkv(64, FloatDType::BF16), shape(64), config).expect("not refused");
    assert!(saved.backward(&moved(&random([8, 128]), &card())).is_none(), "a gradient in float32");
}
