//! Key-value pairs of a GGUF header. Single values become a [`Config`], read like any other configuration; lists, which are long,
//! stay in the file until one is read.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::cursor::Cursor;
use crate::{Config, ModelError};

const MAX_KEY_BYTES: usize = u16::MAX as usize;
const MAX_TEXT_BYTES: usize = 16 << 20;
/// The number of items that an error shows of a list where a single value was expected.
const SHOWN_ITEMS: usize = 4;

#[derive(Debug)]
pub(super) struct GgufMetadata {
    pub(super) values: Config,
    lists: BTreeMap<String, List>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) kind: ValueKind,
    pub(super) count: usize,
    /// The offset of its first item.
    pub(super) begin: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    U64,
    I64,
    F64,
}

/// The value of a key.
enum MetadataValue {
    Value(Value),
    List(List),
}

impl GgufMetadata {
    pub(super) fn read(file: &str, cursor: &mut Cursor<'_>, count: usize) -> Result<Self, ModelError> {
        let (mut values, mut lists) = (Map::new(), BTreeMap::new());
        for _ in 0..count {
            let key = cursor.text("a key", MAX_KEY_BYTES)?.to_owned();
            let value = match entry(cursor)? {
                MetadataValue::Value(value) => value,
                MetadataValue::List(list) => {
                    let shown = first_items(cursor, &list)?;
                    lists.insert(key.clone(), list);
                    shown
                }
            };
            if values.insert(key.clone(), value).is_some() {
                return Err(cursor.refuse(&format!("the key {key:?} occurs twice")));
            }
        }
        Ok(Self { values: Config::new(file, values), lists })
    }

    pub(super) fn list(&self, key: &str) -> Option<&List> {
        self.lists.get(key)
    }
}

/// Reads a value or skips a list.
fn entry(cursor: &mut Cursor<'_>) -> Result<MetadataValue, ModelError> {
    const LIST: u32 = 9;
    match cursor.u32()? {
        LIST => {
            let number = cursor.u32()?;
            if number == LIST {
                return Err(cursor.refuse("lists of lists are not supported"));
            }
            let kind = ValueKind::of(number, cursor)?;
            let count = cursor.count("list items", kind.least_bytes())?;
            let list = List { kind, count, begin: cursor.position() };
            if kind == ValueKind::Text {
                for _ in 0..count {
                    cursor.text("a text", MAX_TEXT_BYTES)?;
                }
            } else {
                cursor.take(count * kind.least_bytes())?;
            }
            Ok(MetadataValue::List(list))
        }
        number => ValueKind::of(number, cursor)?.value(cursor).map(MetadataValue::Value),
    }
}

fn first_items(cursor: &Cursor<'_>, list: &List) -> Result<Value, ModelError> {
    let mut items = cursor.at(list.begin);
    (0..list.count.min(SHOWN_ITEMS)).map(|_| list.kind.value(&mut items)).collect()
}

impl ValueKind {
    fn of(number: u32, cursor: &Cursor<'_>) -> Result<Self, ModelError> {
        Ok(match number {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            8 => Self::Text,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return Err(cursor.refuse(&format!("{number} is not a type of metadata"))),
        })
    }

    /// The fewest bytes of a value; a text begins with its length.
    fn least_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::Text | Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// A number that is not finite becomes `null`, which counts as absent.
    fn value(self, cursor: &mut Cursor<'_>) -> Result<Value, ModelError> {
        Ok(match self {
            Self::U8 => cursor.u8()?.into(),
            Self::I8 => (cursor.u8()? as i8).into(),
            Self::U16 => cursor.u16()?.into(),
            Self::I16 => (cursor.u16()? as i16).into(),
            Self::U32 => cursor.u32()?.into(),
            Self::I32 => (cursor.u32()? as i32).into(),
            Self::F32 => f64::from(f32::from_bits(cursor.u32()?)).into(),
            Self::Bool => (cursor.u8()? != 0).into(),
            Self::Text => cursor.text("a text", MAX_TEXT_BYTES)?.into(),
            Self::U64 => cursor.u64()?.into(),
            Self::I64 => (cursor.u64()? as i64).into(),
            Self::F64 => f64::from_bits(cursor.u64()?).into(),
        })
    }
}
