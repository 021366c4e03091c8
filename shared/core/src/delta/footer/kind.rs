//! Parquet's physical, logical and converted types as one list of kinds, and which of them a Delta type accepts.

use std::fmt;

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as PhysicalType};
use parquet::schema::types::Type;

use crate::delta::schema::{DataType, Primitive};

/// What a leaf of a Parquet schema holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Boolean,
    Integer {
        bits: i8,
        signed: bool,
    },
    Float,
    Double,
    Date,
    Timestamp {
        utc: bool,
        unit: Unit,
    },
    Int96,
    Text,
    Bytes,
    Decimal {
        precision: i32,
        scale: i32,
    },
    /// Annotated as always null.
    Null,
    Other(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Millis,
    Micros,
    Nanos,
}

/// How well a leaf fits a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Equal,
    /// Readers cope, but the writer should do better.
    Readable(&'static str),
    Mismatch,
}

/// The kind of a leaf; groups are no leaves and come out as `Other`.
pub(in crate::delta) fn kind_of(leaf: &Type) -> Kind {
    if !leaf.is_primitive() {
        return Kind::Other("group".to_owned());
    }
    let info = leaf.get_basic_info();
    let physical = leaf.get_physical_type();
    match info.logical_type_ref() {
        Some(logical) => of_logical(physical, logical),
        None => of_converted(physical, info.converted_type(), leaf),
    }
}

fn of_logical(physical: PhysicalType, logical: &LogicalType) -> Kind {
    use PhysicalType::{BYTE_ARRAY, INT32, INT64};
    match (physical, logical) {
        (INT32, LogicalType::Integer(int)) if int.bit_width <= 32 => {
            Kind::Integer { bits: int.bit_width, signed: int.is_signed }
        }
        (INT64, LogicalType::Integer(int)) if int.bit_width == 64 => Kind::Integer { bits: 64, signed: int.is_signed },
        (INT32, LogicalType::Date) => Kind::Date,
        (INT64, LogicalType::Timestamp(stamp)) => Kind::Timestamp {
            utc: stamp.is_adjusted_to_u_t_c,
            unit: match stamp.unit {
                TimeUnit::MILLIS => Unit::Millis,
                TimeUnit::MICROS => Unit::Micros,
                TimeUnit::NANOS => Unit::Nanos,
            },
        },
        (BYTE_ARRAY, LogicalType::String) => Kind::Text,
        (_, LogicalType::Unknown) => Kind::Null,
        (physical, LogicalType::Decimal(decimal)) => decimal_kind(physical, decimal.precision, decimal.scale),
        (physical, logical) => Kind::Other(format!("{physical} annotated {}", annotation(logical))),
    }
}

/// An annotation as schemas spell it.
pub(super) fn annotation(logical: &LogicalType) -> String {
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::MILLIS => "MILLIS",
        TimeUnit::MICROS => "MICROS",
        TimeUnit::NANOS => "NANOS",
    };
    match logical {
        LogicalType::Integer(int) => format!("INTEGER({},{})", int.bit_width, int.is_signed),
        LogicalType::Decimal(decimal) => format!("DECIMAL({},{})", decimal.precision, decimal.scale),
        LogicalType::Time(time) => format!("TIME({},{})", unit(&time.unit), time.is_adjusted_to_u_t_c),
        LogicalType::Timestamp(stamp) => format!("TIMESTAMP({},{})", unit(&stamp.unit), stamp.is_adjusted_to_u_t_c),
        other => {
            let text = format!("{other:?}");
            text.split(|letter: char| !letter.is_alphanumeric())
                .find(|word| !word.is_empty())
                .unwrap_or("?")
                .to_uppercase()
        }
    }
}

fn of_converted(physical: PhysicalType, converted: ConvertedType, leaf: &Type) -> Kind {
    use PhysicalType::{BOOLEAN, BYTE_ARRAY, DOUBLE, FLOAT, INT32, INT64, INT96};
    let integer = |bits, signed| Kind::Integer { bits, signed };
    match (physical, converted) {
        (BOOLEAN, ConvertedType::NONE) => Kind::Boolean,
        (FLOAT, ConvertedType::NONE) => Kind::Float,
        (DOUBLE, ConvertedType::NONE) => Kind::Double,
        (INT96, _) => Kind::Int96,
        (INT32, ConvertedType::NONE | ConvertedType::INT_32) => integer(32, true),
        (INT32, ConvertedType::INT_8) => integer(8, true),
        (INT32, ConvertedType::INT_16) => integer(16, true),
        (INT32, ConvertedType::DATE) => Kind::Date,
        (INT64, ConvertedType::NONE | ConvertedType::INT_64) => integer(64, true),
        (INT64, ConvertedType::TIMESTAMP_MICROS) => Kind::Timestamp { utc: true, unit: Unit::Micros },
        (INT64, ConvertedType::TIMESTAMP_MILLIS) => Kind::Timestamp { utc: true, unit: Unit::Millis },
        (BYTE_ARRAY, ConvertedType::UTF8) => Kind::Text,
        (BYTE_ARRAY, ConvertedType::NONE) => Kind::Bytes,
        (_, ConvertedType::DECIMAL) => {
            let (precision, scale) = decimal_parts(leaf);
            decimal_kind(physical, precision, scale)
        }
        (physical, converted) => Kind::Other(format!("{physical} annotated {converted}")),
    }
}

/// Decimals stand in integers as far as their digits fit, and in bytes of any number.
fn decimal_kind(physical: PhysicalType, precision: i32, scale: i32) -> Kind {
    use PhysicalType::{BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY, INT32, INT64};
    let fits = match physical {
        INT32 => precision <= 9,
        INT64 => precision <= 18,
        FIXED_LEN_BYTE_ARRAY | BYTE_ARRAY => true,
        _ => false,
    };
    if fits && (0..=precision).contains(&scale) {
        Kind::Decimal { precision, scale }
    } else {
        Kind::Other(format!("{physical} annotated decimal({precision},{scale})"))
    }
}

fn decimal_parts(leaf: &Type) -> (i32, i32) {
    match leaf {
        Type::PrimitiveType { precision, scale, .. } => (*precision, *scale),
        Type::GroupType { .. } => (0, 0),
    }
}

/// Whether values of `kind` may stand in a column of type `column` (rules 11.2), which had the types `before`.
pub(super) fn fit(column: &Primitive, before: &[Primitive], kind: &Kind) -> Fit {
    match fit_now(column, kind) {
        Fit::Mismatch if before.iter().any(|old| fit_now(old, kind) == Fit::Equal) => {
            Fit::Readable("the file has a type that the column had before it was widened")
        }
        fit => fit,
    }
}

fn fit_now(column: &Primitive, kind: &Kind) -> Fit {
    let narrower = Fit::Readable("the file's integers are narrower than the column's");
    match (column, kind) {
        (Primitive::Boolean, Kind::Boolean)
        | (Primitive::Float, Kind::Float)
        | (Primitive::Double, Kind::Double)
        | (Primitive::Date, Kind::Date)
        | (Primitive::String, Kind::Text)
        | (Primitive::Binary, Kind::Bytes)
        | (Primitive::Byte, Kind::Integer { bits: 8, signed: true })
        | (Primitive::Short, Kind::Integer { bits: 16, signed: true })
        | (Primitive::Integer, Kind::Integer { bits: 32, signed: true })
        | (Primitive::Long, Kind::Integer { bits: 64, signed: true })
        | (Primitive::Timestamp, Kind::Int96 | Kind::Timestamp { utc: true, unit: Unit::Micros })
        | (Primitive::TimestampNtz, Kind::Timestamp { utc: false, unit: Unit::Micros }) => Fit::Equal,
        (Primitive::Short, Kind::Integer { bits: 8, signed: true })
        | (Primitive::Integer, Kind::Integer { bits: 8 | 16, signed: true }) => narrower,
        (Primitive::Timestamp, Kind::Timestamp { utc: true, unit: Unit::Millis })
        | (Primitive::TimestampNtz, Kind::Timestamp { utc: false, unit: Unit::Millis }) => {
            Fit::Readable("the file's timestamps count milliseconds instead of microseconds")
        }
        (Primitive::String, Kind::Bytes) => Fit::Readable("the file's strings are not annotated as such"),
        (Primitive::Decimal { precision, scale }, Kind::Decimal { precision: p, scale: s })
            if i32::from(*precision) == *p && i32::from(*scale) == *s =>
        {
            Fit::Equal
        }
        _ => Fit::Mismatch,
    }
}

impl Kind {
    /// The Delta type whose values these are; nothing where there is none.
    pub fn to_delta(&self) -> Option<DataType> {
        Some(DataType::Primitive(match self {
            Kind::Boolean => Primitive::Boolean,
            Kind::Integer { bits: 8, signed: true } => Primitive::Byte,
            Kind::Integer { bits: 16, signed: true } => Primitive::Short,
            Kind::Integer { bits: 32, signed: true } => Primitive::Integer,
            Kind::Integer { bits: 64, signed: true } => Primitive::Long,
            Kind::Float => Primitive::Float,
            Kind::Double => Primitive::Double,
            Kind::Date => Primitive::Date,
            Kind::Int96 => Primitive::Timestamp,
            Kind::Timestamp { unit: Unit::Nanos, .. } => return None,
            Kind::Timestamp { utc: true, .. } => Primitive::Timestamp,
            Kind::Timestamp { utc: false, .. } => Primitive::TimestampNtz,
            Kind::Text => Primitive::String,
            Kind::Bytes => Primitive::Binary,
            Kind::Decimal { precision, scale } => Primitive::Decimal {
                precision: u8::try_from(*precision).ok().filter(|precision| (1..=38).contains(precision))?,
                scale: u8::try_from(*scale).ok()?,
            },
            Kind::Null => return Some(DataType::Void),
            Kind::Integer { .. } | Kind::Other(_) => return None,
        }))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Boolean => f.write_str("boolean"),
            Kind::Integer { bits: 8, signed: true } => f.write_str("byte"),
            Kind::Integer { bits: 16, signed: true } => f.write_str("short"),
            Kind::Integer { bits: 32, signed: true } => f.write_str("integer"),
            Kind::Integer { bits: 64, signed: true } => f.write_str("long"),
            Kind::Integer { bits, .. } => write!(f, "unsigned {bits}-bit integer"),
            Kind::Float => f.write_str("float"),
            Kind::Double => f.write_str("double"),
            Kind::Date => f.write_str("date"),
            Kind::Timestamp { utc, unit } => {
                let unit = match unit {
                    Unit::Millis => "milliseconds",
                    Unit::Micros => "microseconds",
                    Unit::Nanos => "nanoseconds",
                };
                write!(f, "{} in {unit}", if *utc { "timestamp" } else { "timestamp_ntz" })
            }
            Kind::Int96 => f.write_str("timestamp (INT96)"),
            Kind::Text => f.write_str("string"),
            Kind::Bytes => f.write_str("binary"),
            Kind::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Kind::Null => f.write_str("void"),
            Kind::Other(text) => f.write_str(text),
        }
    }
}
