//! The properties of a manifest's key: type, default, and when it applies.
//!
//! Must not know TOML or particular fields; those are rows of [`FIELDS`](super::table::FIELDS).

use crate::record::Value;
use std::fmt;

/// A key of the manifest.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Dotted name in the manifest: `training.learning_rate`.
    pub key: &'static str,
    /// Dotted name in a cell; it differs only for keys outside tables.
    pub cell: &'static str,
    /// Allowed values.
    pub kind: Kind,
    /// Value in a cell if the manifest has none.
    pub preset: Preset,
    /// Condition under which it applies; `None` for always.
    pub when: Option<When>,
    /// The part of the cell or manifest that it belongs to.
    pub role: Role,
    /// Whether a list of values makes an axis of the grid.
    pub axis: bool,
    /// Meaning, in one line.
    pub meaning: &'static str,
}

impl Field {
    /// Creates a field that is part of the identity.
    pub(super) const fn hashed(key: &'static str, kind: Kind, meaning: &'static str) -> Self {
        Self { key, cell: key, kind, preset: Preset::None, when: None, role: Role::Config, axis: true, meaning }
    }

    /// Creates a field that is only recorded, with one value for the whole manifest.
    pub(super) const fn setting(key: &'static str, kind: Kind, meaning: &'static str) -> Self {
        Self { role: Role::Setting, axis: false, ..Self::hashed(key, kind, meaning) }
    }

    /// Creates a field that is part of the identity and whose list is a single value, not an axis.
    pub(super) const fn listed(key: &'static str, kind: Kind, meaning: &'static str) -> Self {
        Self { axis: false, ..Self::hashed(key, kind, meaning) }
    }

    /// Creates a key that shapes the grid or the number of runs, and is not a field of a cell.
    pub(super) const fn shape(key: &'static str, kind: Kind, meaning: &'static str) -> Self {
        Self { role: Role::Shape, axis: false, ..Self::hashed(key, kind, meaning) }
    }

    pub(super) const fn called(mut self, cell: &'static str) -> Self {
        self.cell = cell;
        self
    }

    pub(super) const fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    pub(super) const fn preset(mut self, preset: Preset) -> Self {
        self.preset = preset;
        self
    }

    pub(super) const fn int(self, value: i64) -> Self {
        self.preset(Preset::Is(Constant::Int(value)))
    }

    pub(super) const fn real(self, value: f64) -> Self {
        self.preset(Preset::Is(Constant::Real(value)))
    }

    pub(super) const fn text(self, value: &'static str) -> Self {
        self.preset(Preset::Is(Constant::Text(value)))
    }

    pub(super) const fn required(self) -> Self {
        self.preset(Preset::Required)
    }

    pub(super) const fn when(mut self, field: &'static str, is: &'static [&'static str]) -> Self {
        self.when = Some(When { field, is });
        self
    }

    /// Returns the table of the key; empty for a key outside tables.
    pub fn section(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(section, _)| section)
    }

    /// Whether it describes the built-in trainer's work. With `[program]`, such keys have no defaults.
    pub(super) fn is_training_work(&self) -> bool {
        matches!(self.section(), "model" | "data" | "training" | "inference")
    }

    /// Whether it can be written in a manifest.
    pub(super) fn is_writable(&self) -> bool {
        self.role != Role::Constant
    }

    /// Whether it is resolved for each cell.
    pub(super) fn is_of_cell(&self) -> bool {
        self.axis || matches!(self.role, Role::Config | Role::Constant)
    }
}

/// The part of a cell or manifest that a field belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The cell's configuration, which is hashed.
    Config,
    /// Like `Config`, but with a fixed value.
    Constant,
    /// The cell's settings, which are only recorded.
    Setting,
    /// The seed, a separate part of the identity.
    Seed,
    /// The program part of the identity.
    Program,
    /// The cell's settings; the image that it names is hashed as the container part.
    Container,
    /// None: it shapes the grid or the number of runs.
    Shape,
}

impl Role {
    /// Returns the description for the reference.
    pub fn name(self) -> &'static str {
        match self {
            Self::Config | Self::Constant => "hashed (config)",
            Self::Setting => "recorded",
            Self::Seed => "hashed (seed)",
            Self::Program => "hashed (program)",
            Self::Container => "hashed (container, by what it names)",
            Self::Shape => "not recorded",
        }
    }
}

/// A condition: another field has one of these values.
#[derive(Clone, Copy, Debug)]
pub struct When {
    /// Dotted name of the other field.
    pub field: &'static str,
    /// Values that satisfy the condition.
    pub is: &'static [&'static str],
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.field, choices(self.is))
    }
}

/// The value in a cell if the manifest has none.
#[derive(Clone, Copy, Debug)]
pub enum Preset {
    /// No value.
    None,
    /// The key must be given.
    Required,
    /// This value.
    Is(Constant),
    /// The value of the first condition that is true.
    By(&'static [(When, Constant)]),
    /// A computed value, described in words.
    Stated(&'static str),
}

/// A constant of the field table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Constant {
    /// An integer.
    Int(i64),
    /// A float.
    Real(f64),
    /// Text.
    Text(&'static str),
}

impl From<Constant> for Value {
    fn from(constant: Constant) -> Self {
        match constant {
            Constant::Int(value) => Self::Int(value),
            Constant::Real(value) => Self::Float(value),
            Constant::Text(value) => Self::from(value),
        }
    }
}

/// The allowed values of a field.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Text without control characters, at most `max` characters; `lines` allows line breaks.
    Text {
        /// Greatest length in characters.
        max: usize,
        /// Whether line breaks are allowed.
        lines: bool,
    },
    /// Text without blanks and control characters, at most `max` characters.
    Word {
        /// Greatest length in characters.
        max: usize,
    },
    /// True or false.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One of these words for the built-in trainer; with `[program]` any name of `a-z 0-9 _ . -`.
    Known(&'static [&'static str]),
    /// An integer within inclusive limits.
    Int {
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
    },
    /// One of these integers.
    OneOf(&'static [i64]),
    /// A finite number within an interval.
    Real(Interval),
    /// An unsigned 64-bit integer, or its decimal digits as text.
    Seed,
    /// A list of texts.
    Texts,
    /// A list of [`Bind`](super::Bind)s.
    Binds,
    /// A list of distinct integers from 1.
    Counts {
        /// Greatest value.
        max: i64,
        /// Greatest number of values.
        most: usize,
    },
    /// A part of the grid, described in words.
    Grid(&'static str),
    /// True, false, a number or text.
    Scalar,
    /// Patterns by metric name.
    Patterns,
}

/// An interval of real numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interval {
    /// Every finite number.
    Any,
    /// Above 0.
    Positive,
    /// Above 0, at most this.
    UpTo(f64),
    /// From 0, below this.
    Below(f64),
}

impl Interval {
    pub(super) fn contains(self, value: f64) -> bool {
        value.is_finite()
            && match self {
                Self::Any => true,
                Self::Positive => value > 0.0,
                Self::UpTo(top) => value > 0.0 && value <= top,
                Self::Below(top) => value >= 0.0 && value < top,
            }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("a finite number"),
            Self::Positive => f.write_str("a finite number above 0"),
            Self::UpTo(top) => write!(f, "a number above 0 and at most {top}"),
            Self::Below(top) => write!(f, "a number from 0 and below {top}"),
        }
    }
}

/// Formats what is allowed, to follow "it must be".
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { max, lines: true } => write!(f, "text of at most {max} characters"),
            Self::Text { max, lines: false } => write!(f, "one line of text, 1 to {max} characters"),
            Self::Word { max } => write!(f, "text without blanks, 1 to {max} characters"),
            Self::Flag => f.write_str("true or false"),
            Self::Choice(words) | Self::Known(words) => f.write_str(&choices(words)),
            Self::Int { min, max: i64::MAX } => write!(f, "a whole number from {min}"),
            Self::Int { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::OneOf(numbers) => {
                let words: Vec<_> = numbers.iter().map(ToString::to_string).collect();
                f.write_str(&choices(&words))
            }
            Self::Real(interval) => interval.fmt(f),
            Self::Seed => write!(f, "a whole number from 0 to {}", u64::MAX),
            Self::Texts => f.write_str("a list of texts"),
            Self::Binds => f.write_str("a list of `HOST[:INSIDE][:ro]` or `…:rw`"),
            Self::Counts { max, most } => {
                write!(f, "a list of 1 to {most} different whole numbers from 1 to {max}")
            }
            Self::Grid(words) => f.write_str(words),
            Self::Scalar => f.write_str("true, false, a finite number or text"),
            Self::Patterns => f.write_str("a table of patterns by the metrics' names"),
        }
    }
}

/// Joins words: `a`, `a or b`, `a, b or c`.
pub(super) fn choices(words: &[impl AsRef<str>]) -> String {
    match words {
        [] => String::new(),
        [only] => only.as_ref().to_owned(),
        [most @ .., end] => {
            let most: Vec<_> = most.iter().map(AsRef::as_ref).collect();
            format!("{} or {}", most.join(", "), end.as_ref())
        }
    }
}
