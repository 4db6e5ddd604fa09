//! Nothing, in place of cubecl's backend on WebGPU.
//!
//! cubek-tile 0.3.0-pre.3 turns on cubecl's feature `test-runtime` also outside of its tests. That feature needs the
//! backend, with wgpu, naga and 39 crates more, although nothing here calls it.

/// The type that cubecl names as its runtime for tests, unless exactly one other backend is turned on.
#[derive(Debug)]
pub struct WgpuRuntime;
