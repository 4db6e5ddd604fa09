//! Builds annotations from entries. Each entry is checked when it is read; references are checked when all entries are
//! there.

use super::fault::{EntryFault, Fault, Halt};
use super::fields::{Fields, numbers};
use super::sections::{Entry, List, visit};
use super::{Category, Image, Instance, Outline, Parts};
use crate::detection::boxes::Xywh;
use crate::detection::mask::{Mask, MaskError, Size};
use ledger_record::{DEEPEST, is_hidden, is_picture};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Component, Path};

/// The entries of the file's lists, in its order.
#[derive(Default)]
pub(super) struct Listed {
    categories: Vec<Category>,
    images: Vec<Image>,
    annotations: Vec<Annotation>,
    /// For each list, the ids and their places.
    ids: [HashMap<u64, usize>; 3],
}

/// An annotation whose image and category have not been looked up yet.
struct Annotation {
    offset: usize,
    id: u64,
    image: u64,
    category: u64,
    bounds: Xywh,
    area: f64,
    crowd: bool,
    outline: Option<Raw>,
}

/// An outline whose image is not known yet.
enum Raw {
    Polygons(Vec<Vec<f64>>),
    Runs { size: [u64; 2], counts: Counts },
}

enum Counts {
    Plain(Vec<u32>),
    Compressed(String),
}

/// A checked entry.
enum Item {
    Image(Image),
    Annotation(Annotation),
    Category(Category),
}

impl Listed {
    pub fn read(bytes: &[u8], parts: Parts) -> Result<Self, Halt> {
        let mut listed = Self::default();
        let read = |Entry { list, index, offset, value }: Entry| {
            let id = value.get("id").and_then(Value::as_u64);
            let item = item(list, offset, &value, parts).map_err(|fault| halt(list, index, offset, id, fault))?;
            Ok((list, index, offset, item))
        };
        visit(bytes, read, |(list, index, offset, item)| {
            let id = item.id();
            listed.keep(index, item).map_err(|fault| halt(list, index, offset, Some(id), fault))
        })?;
        Ok(listed)
    }

    fn keep(&mut self, index: usize, item: Item) -> Result<(), EntryFault> {
        let (list, place) = match item {
            Item::Image(_) => (List::Images, 0),
            Item::Annotation(_) => (List::Annotations, 1),
            Item::Category(_) => (List::Categories, 2),
        };
        if let Some(first) = self.ids[place].insert(item.id(), index) {
            return Err(EntryFault::Duplicate { list: list.name(), first });
        }
        match item {
            Item::Image(image) => self.images.push(image),
            Item::Annotation(annotation) => self.annotations.push(annotation),
            Item::Category(category) => self.categories.push(category),
        }
        Ok(())
    }

    /// Assigns every annotation to its class and its image. Returns categories and images in the order of their ids.
    pub fn link(self) -> Result<(Vec<Category>, Vec<Image>), Halt> {
        let Self { mut categories, mut images, annotations, ids: _ } = self;
        categories.sort_unstable_by_key(|category| category.id);
        images.sort_unstable_by_key(|image| image.id);
        let places = |ids: &mut dyn Iterator<Item = u64>| ids.zip(0..).collect::<HashMap<u64, usize>>();
        let classes = places(&mut categories.iter().map(|category| category.id));
        let rooms = places(&mut images.iter().map(|image| image.id));
        for (index, annotation) in annotations.into_iter().enumerate() {
            let (offset, id) = (annotation.offset, annotation.id);
            let room = rooms.get(&annotation.image).and_then(|place| images.get_mut(*place));
            let class = classes.get(&annotation.category).copied();
            let linked = join(annotation, room, class);
            linked.map_err(|fault| halt(List::Annotations, index, offset, Some(id), fault))?;
        }
        Ok((categories, images))
    }
}

impl Item {
    fn id(&self) -> u64 {
        match self {
            Self::Image(image) => image.id,
            Self::Annotation(annotation) => annotation.id,
            Self::Category(category) => category.id,
        }
    }
}

fn item(list: List, offset: usize, value: &Value, parts: Parts) -> Result<Item, EntryFault> {
    let fields = Fields::of(value)?;
    let id = fields.whole("id")?;
    Ok(match list {
        List::Images => Item::Image(image(id, fields)?),
        List::Annotations => Item::Annotation(annotation(offset, id, fields, parts)?),
        List::Categories => Item::Category(Category { id, name: fields.text("name")?.to_owned() }),
    })
}

fn halt(list: List, index: usize, offset: usize, id: Option<u64>, fault: EntryFault) -> Halt {
    Halt { offset, fault: Fault::Entry { list: list.name(), index, id, fault: Box::new(fault) } }
}

/// Adds an annotation to its image.
fn join(annotation: Annotation, image: Option<&mut Image>, class: Option<usize>) -> Result<(), EntryFault> {
    let Annotation { id, bounds, area, crowd, .. } = annotation;
    let image = image.ok_or(EntryFault::Image { image: annotation.image })?;
    let class = class.ok_or(EntryFault::Category { category: annotation.category })?;
    let outline = annotation.outline.map(|raw| outline(raw, image.size)).transpose()?;
    image.objects.push(Instance { id, class, bounds, area, crowd, outline });
    Ok(())
}

fn image(id: u64, fields: Fields<'_>) -> Result<Image, EntryFault> {
    let below = |value: &Value| {
        let path = Path::new(value.as_str()?);
        // Other files in the folder are not part of a run's id.
        let seen = |part: Component<'_>| match part {
            Component::Normal(name) => !is_hidden(name),
            part => part == Component::CurDir,
        };
        let depth = path.components().filter(|part| *part != Component::CurDir).count();
        let is_near = depth <= DEEPEST + 1;
        (is_near && is_picture(path) && path.components().all(seen)).then(|| path.to_owned())
    };
    Ok(Image {
        id,
        file: fields.get("file_name", PICTURE, below)?,
        size: Size { width: fields.side("width")?, height: fields.side("height")? },
        objects: Vec::new(),
    })
}

pub(super) const PICTURE: &str = "a .jpg, .jpeg or .png below the folder of the pictures, without a dot at the beginning of a name, in 16 folders at most";

fn annotation(offset: usize, id: u64, fields: Fields<'_>, parts: Parts) -> Result<Annotation, EntryFault> {
    Ok(Annotation {
        offset,
        id,
        image: fields.whole("image_id")?,
        category: fields.whole("category_id")?,
        bounds: Xywh::new(fields.bounds()?),
        area: fields.area()?,
        crowd: fields.flag("iscrowd")?,
        outline: if parts == Parts::Masks { Some(raw_outline(fields)?) } else { None },
    })
}

const OUTLINE: &str =
    "a list of polygons, each a list of numbers, or an object with `size` and `counts`; boxes alone need none";

fn raw_outline(fields: Fields<'_>) -> Result<Raw, EntryFault> {
    let raw = fields.get("segmentation", OUTLINE, |value| match value {
        Value::Array(polygons) if !polygons.is_empty() => {
            polygons.iter().map(numbers).collect::<Option<_>>().map(Raw::Polygons)
        }
        Value::Object(runs) => {
            let size: Vec<u64> = runs.get("size")?.as_array()?.iter().map(Value::as_u64).collect::<Option<_>>()?;
            Some(Raw::Runs { size: size.try_into().ok()?, counts: counts(runs.get("counts")?)? })
        }
        _ => None,
    })?;
    if let Raw::Polygons(polygons) = &raw {
        let mut lengths = polygons.iter().map(Vec::len).enumerate();
        if let Some((polygon, numbers)) = lengths.find(|(_, numbers)| *numbers < 6 || numbers % 2 == 1) {
            return Err(EntryFault::Polygon { polygon, numbers });
        }
    }
    Ok(raw)
}

fn counts(value: &Value) -> Option<Counts> {
    let count = |value: &Value| u32::try_from(value.as_u64()?).ok();
    match value {
        Value::String(text) => Some(Counts::Compressed(text.clone())),
        Value::Array(counts) => counts.iter().map(count).collect::<Option<_>>().map(Counts::Plain),
        _ => None,
    }
}

/// Checks an outline against its image.
fn outline(raw: Raw, image: Size) -> Result<Outline, EntryFault> {
    let (found, counts) = match raw {
        Raw::Polygons(polygons) => return Ok(Outline::Polygons(polygons)),
        Raw::Runs { size, counts } => (size, counts),
    };
    if found != [image.height, image.width].map(u64::from) {
        return Err(EntryFault::Size { found, image });
    }
    let mask: Result<Mask, MaskError> = match counts {
        Counts::Plain(counts) => Mask::from_counts(image, &counts),
        Counts::Compressed(text) => Mask::from_compressed(image, &text),
    };
    mask.map(Outline::Runs).map_err(EntryFault::Runs)
}
