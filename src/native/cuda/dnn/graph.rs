//! The objects of cuDNN's graph interface (its backend): built from attributes, finalized, then read-only.
//!
//! Knows how attributes are passed, not what they mean. Numbers and types are those of `cudnn_graph.h`, which are equal
//! in cuDNN 9.12, 9.14 and 9.19.

use crate::cuda::library::{Opaque, functions, open};
use crate::cuda::{Fault, check};
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::ptr::{from_ref, null_mut};
use std::sync::OnceLock;

functions! {
    /// Functions of `cudnn_graph.h`. Each returns a `cudnnStatus_t`.
    Graph {
        /// `cudnnBackendCreateDescriptor(sort, object)`.
        create = c"cudnnBackendCreateDescriptor" (c_int, *mut Opaque);
        /// `cudnnBackendDestroyDescriptor(object)`.
        destroy = c"cudnnBackendDestroyDescriptor" (Opaque);
        /// `cudnnBackendSetAttribute(object, attribute, type, how many values, values)`.
        set = c"cudnnBackendSetAttribute" (Opaque, c_int, c_int, i64, *const c_void);
        /// `cudnnBackendGetAttribute(object, attribute, type, capacity for values, number of values, values)`.
        get = c"cudnnBackendGetAttribute" (Opaque, c_int, c_int, i64, *mut i64, *mut c_void);
        /// `cudnnBackendFinalize(object)`.
        finish = c"cudnnBackendFinalize" (Opaque);
        /// `cudnnBackendExecute(handle, plan, operands)`.
        execute = c"cudnnBackendExecute" (Opaque, Opaque, Opaque);
    }
}

/// Returns cuDNN's graph interface, loaded on first use. `None` if the library or the interface is absent.
pub fn graph() -> Option<&'static Graph> {
    static GRAPH: OnceLock<Option<Graph>> = OnceLock::new();
    let names = ["libcudnn.so", "libcudnn.so.9"];
    GRAPH.get_or_init(|| names.iter().find_map(|name| open(name, Graph::of))).as_ref()
}

/// The type of an object, a `cudnnBackendDescriptorType_t`, with the names of its operations for error messages.
#[derive(Clone, Copy)]
pub struct Sort {
    code: c_int,
    creation: &'static str,
    setting: &'static str,
    asking: &'static str,
    finishing: &'static str,
}

macro_rules! sorts {
    ($($(#[$about:meta])* $name:ident = $code:literal $what:literal;)*) => {
        $(
            $(#[$about])*
            pub const $name: Sort = Sort {
                code: $code,
                creation: concat!("cudnnBackendCreateDescriptor for ", $what),
                setting: concat!("cudnnBackendSetAttribute of ", $what),
                asking: concat!("cudnnBackendGetAttribute of ", $what),
                finishing: concat!("cudnnBackendFinalize of ", $what),
            };
        )*
    };
}

sorts! {
    /// A pointwise function.
    POINTWISE = 0 "a pointwise function";
    /// The parameters of a convolution.
    CONVOLUTION = 1 "a convolution";
    /// A way to compute a graph.
    ENGINE = 2 "an engine";
    /// An engine with its options chosen.
    CONFIGURATION = 3 "a configuration";
    /// The source of proposed configurations.
    HEURISTICS = 4 "heuristics";
    /// An executable configuration.
    PLAN = 5 "a plan";
    /// A convolution.
    CONVOLVE = 10 "an operation";
    /// The gradient of the weights of a convolution.
    OF_WEIGHT = 11 "an operation";
    /// The gradient of the images of a convolution.
    OF_INPUT = 12 "an operation";
    /// A pointwise function of one or two tensors.
    APPLY = 13 "an operation";
    /// Operations that are computed together.
    OPERATIONS = 15 "a graph";
    /// The addresses of a plan's operands.
    OPERANDS = 16 "operands";
    /// A tensor and its memory layout.
    TENSOR = 17 "a tensor";
    /// The properties of a GPU.
    #[cfg(test)]
    PROPERTIES = 38 "properties of a card";
}

/// Values of an attribute, with a variant for each `cudnnBackendAttributeType_t`.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// `cudnnHandle_t`.
    Handle(Opaque),
    /// `cudnnDataType_t`.
    Format(c_int),
    /// A truth value.
    Flag(bool),
    /// Whole numbers.
    Integers(&'a [i64]),
    /// A float32 number.
    Real(f32),
    /// Addresses on the GPU.
    Addresses(&'a [Opaque]),
    /// `cudnnConvolutionMode_t`.
    Convolution(c_int),
    /// `cudnnBackendHeurMode_t`.
    Heuristics(c_int),
    /// `cudnnNanPropagation_t`.
    Nan(c_int),
    /// `cudnnPointwiseMode_t`.
    Pointwise(c_int),
    /// [Handles](Object::place) of other objects, which must outlive this object.
    Objects(&'a [Opaque]),
    /// Another object, which must outlive this object.
    Object(&'a Object),
    /// Text.
    #[cfg(test)]
    Text(&'a [u8]),
}

const INTEGERS: c_int = 3;
const NOTES: c_int = 11;
const OBJECTS: c_int = 15;

impl Value<'_> {
    /// Returns the type, the number of values and their address.
    fn parts(&self) -> (c_int, usize, *const c_void) {
        match self {
            Self::Handle(handle) => (0, 1, from_ref(handle).cast()),
            Self::Format(code) => (1, 1, from_ref(code).cast()),
            Self::Flag(flag) => (2, 1, from_ref(flag).cast()),
            Self::Integers(values) => (INTEGERS, values.len(), values.as_ptr().cast()),
            Self::Real(value) => (4, 1, from_ref(value).cast()),
            Self::Addresses(places) => (6, places.len(), places.as_ptr().cast()),
            Self::Convolution(mode) => (7, 1, from_ref(mode).cast()),
            Self::Heuristics(mode) => (8, 1, from_ref(mode).cast()),
            Self::Nan(rule) => (10, 1, from_ref(rule).cast()),
            Self::Pointwise(mode) => (14, 1, from_ref(mode).cast()),
            Self::Objects(places) => (OBJECTS, places.len(), places.as_ptr().cast()),
            Self::Object(object) => (OBJECTS, 1, from_ref(&object.place).cast()),
            #[cfg(test)]
            Self::Text(text) => (24, text.len(), text.as_ptr().cast()),
        }
    }
}

/// An object of the library. It is destroyed on drop.
pub struct Object {
    graph: &'static Graph,
    sort: Sort,
    place: Opaque,
}

// SAFETY: an object is plain memory of the library, not bound to a thread; of a shared one attributes are only read.
#[expect(unsafe_code, reason = "a plan is made on one thread and used on another")]
unsafe impl Send for Object {}

impl Object {
    /// Creates an object with these attributes and finalizes it.
    pub fn new(graph: &'static Graph, sort: Sort, attributes: &[(c_int, Value<'_>)]) -> Result<Self, Fault> {
        let object = Self::empty(graph, sort)?;
        for (attribute, value) in attributes {
            let (code, count, values) = value.parts();
            // SAFETY: the object was made by the library; so many values of this type can be read.
            #[expect(unsafe_code, reason = "a function of cuDNN")]
            let status = unsafe { (graph.set)(object.place, *attribute, code, long(count)?, values) };
            check(sort.setting, status)?;
        }
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let status = unsafe { (graph.finish)(object.place) };
        check(sort.finishing, status)?;
        Ok(object)
    }

    /// Returns the library's handle of the object.
    pub fn place(&self) -> Opaque {
        self.place
    }

    /// Creates an object for the library to fill.
    fn empty(graph: &'static Graph, sort: Sort) -> Result<Self, Fault> {
        let mut place = null_mut();
        // SAFETY: `place` can be written to.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let status = unsafe { (graph.create)(sort.code, &raw mut place) };
        check(sort.creation, status)?;
        Ok(Self { graph, sort, place })
    }

    /// Returns an integer attribute.
    pub fn integer(&self, attribute: c_int) -> Result<i64, Fault> {
        let mut value = [0_i64];
        self.get(attribute, INTEGERS, &mut value)?;
        Ok(value[0])
    }

    /// Returns an attribute with a list of `cudnnBackendNumericalNote_t`.
    pub fn notes(&self, attribute: c_int) -> Result<Vec<c_int>, Fault> {
        // There are ten different notes.
        let mut notes = vec![-1; 32];
        let count = self.get(attribute, NOTES, &mut notes)?;
        notes.truncate(count);
        Ok(notes)
    }

    /// Returns an attribute with a list of `cudnnBackendBehaviorNote_t`.
    #[cfg(test)]
    pub fn behaviours(&self, attribute: c_int) -> Result<Vec<c_int>, Fault> {
        let mut notes = vec![-1; 32];
        let count = self.get(attribute, 19, &mut notes)?;
        notes.truncate(count);
        Ok(notes)
    }

    /// Returns an attribute that is another object.
    pub fn object(&self, attribute: c_int, sort: Sort) -> Result<Self, Fault> {
        let object = Self::empty(self.graph, sort)?;
        self.get(attribute, OBJECTS, &mut [object.place])?;
        Ok(object)
    }

    /// Returns an attribute that is a list of objects.
    pub fn objects(&self, attribute: c_int, sort: Sort) -> Result<Vec<Self>, Fault> {
        let room = self.get::<Opaque>(attribute, OBJECTS, &mut [])?;
        let mut objects = (0..room).map(|_| Self::empty(self.graph, sort)).collect::<Result<Vec<_>, _>>()?;
        let mut places: Vec<Opaque> = objects.iter().map(|object| object.place).collect();
        // The library may report more than it returns.
        let count = self.get(attribute, OBJECTS, &mut places)?;
        objects.truncate(count);
        Ok(objects)
    }

    /// Reads values of an attribute into a buffer. Returns how many the library has.
    fn get<T>(&self, attribute: c_int, code: c_int, values: &mut [T]) -> Result<usize, Fault> {
        let mut count = 0;
        let room = long(values.len())?;
        let start = if values.is_empty() { null_mut() } else { values.as_mut_ptr() };
        // SAFETY: the object was made by the library; there is room for so many values, which are as long as the type that is asked for.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let status = unsafe { (self.graph.get)(self.place, attribute, code, room, &raw mut count, start.cast()) };
        check(self.sort.asking, status)?;
        usize::try_from(count).map_err(|_| Fault::Failed { what: self.sort.asking, code: -1 })
    }

    /// Executes this plan with these operands. The handle must belong to the plan's GPU, whose context must be current.
    pub fn execute(&self, handle: Opaque, operands: &Self) -> Result<(), Fault> {
        // SAFETY: the caller has made sure that the operands are on the card and as the plan was told.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let status = unsafe { (self.graph.execute)(handle, self.place, operands.place) };
        check("cudnnBackendExecute", status)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the object was made by the library and is held by nobody else. Nothing can be done about a failure.
        #[expect(unsafe_code, reason = "a function of cuDNN")]
        let _ = unsafe { (self.graph.destroy)(self.place) };
    }
}

/// Converts a length to the library's type.
pub fn long(length: usize) -> Result<i64, Fault> {
    i64::try_from(length).map_err(|_| Fault::Runtime("a tensor is too long for cuDNN".to_owned()))
}

/// Converts lengths to the library's type.
pub fn longs<const D: usize>(lengths: [usize; D]) -> Result<[i64; D], Fault> {
    let mut longs = [0; D];
    for (value, length) in longs.iter_mut().zip(lengths) {
        *value = long(length)?;
    }
    Ok(longs)
}
