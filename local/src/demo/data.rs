//! The demo's data: daily weather of Seattle, 2012 to 2015 (`demo/SOURCE.md` says where it is from), as Parquet files.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};
use thiserror::Error;
use time::{Date, Month};

const CSV: &str = include_str!("../../demo/seattle-weather.csv");

/// The data cannot be turned into Parquet.
#[derive(Debug, Error)]
pub enum DataError {
    #[error("line {line} of the demo's data is not a day of weather")]
    BadLine { line: usize },
    #[error("Parquet: {0}")]
    Parquet(#[from] ParquetError),
}

/// One day.
#[derive(Clone, Debug, PartialEq)]
pub struct Day {
    /// `yyyy-MM-dd`
    pub date: String,
    pub days_since_1970: i32,
    pub year: i32,
    pub month: u8,
    pub precipitation_mm: f64,
    pub temp_max_c: f64,
    pub temp_min_c: f64,
    pub wind_m_s: f64,
    pub weather: String,
}

/// How `temp_max` is written: as the table says, or wrongly, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TempMax {
    Double,
    Text,
}

/// All days by (year, month).
pub fn months() -> Result<BTreeMap<(i32, u8), Vec<Day>>, DataError> {
    let mut months: BTreeMap<(i32, u8), Vec<Day>> = BTreeMap::new();
    for (index, line) in CSV.lines().enumerate().skip(1) {
        let day = parse_day(line).ok_or(DataError::BadLine { line: index + 1 })?;
        months.entry((day.year, day.month)).or_default().push(day);
    }
    Ok(months)
}

fn parse_day(line: &str) -> Option<Day> {
    let mut cells = line.split(',');
    let date = cells.next()?.to_owned();
    let mut number = || cells.next()?.parse::<f64>().ok();
    let (precipitation_mm, temp_max_c, temp_min_c, wind_m_s) = (number()?, number()?, number()?, number()?);
    let weather = cells.next()?.to_owned();
    let mut parts = date.split('-');
    let year: i32 = parts.next()?.parse().ok()?;
    let month: u8 = parts.next()?.parse().ok()?;
    let day: u8 = parts.next()?.parse().ok()?;
    let days_since_1970 = days_since_1970(year, month, day)?;
    Some(Day { date, days_since_1970, year, month, precipitation_mm, temp_max_c, temp_min_c, wind_m_s, weather })
}

fn days_since_1970(year: i32, month: u8, day: u8) -> Option<i32> {
    let date = Date::from_calendar_date(year, Month::try_from(month).ok()?, day).ok()?;
    Some(date.to_julian_day() - Date::from_ordinal_date(1970, 1).ok()?.to_julian_day())
}

/// Schema of the Delta table, as the log's `schemaString`. The partition columns `year` and `month` are not in the files.
pub fn schema_string() -> String {
    let field = |name: &str, kind: &str| json!({"name": name, "type": kind, "nullable": true, "metadata": {}});
    json!({"type": "struct", "fields": [
        field("date", "date"),
        field("precipitation", "double"),
        field("temp_max", "double"),
        field("temp_min", "double"),
        field("wind", "double"),
        field("weather", "string"),
        field("year", "integer"),
        field("month", "integer"),
    ]})
    .to_string()
}

/// Columns of the table for the catalog, with Hive's type names.
pub fn hive_columns() -> Value {
    let column = |name: &str, kind: &str| json!({"Name": name, "Type": kind});
    json!([
        column("date", "date"),
        column("precipitation", "double"),
        column("temp_max", "double"),
        column("temp_min", "double"),
        column("wind", "double"),
        column("weather", "string"),
    ])
}

/// One Parquet file with these days.
pub fn parquet_file(days: &[Day], temp_max: TempMax) -> Result<Bytes, DataError> {
    let temp_max_column = match temp_max {
        TempMax::Double => "optional double temp_max;",
        TempMax::Text => "optional binary temp_max (STRING);",
    };
    let schema = format!(
        "message weather {{ optional int32 date (DATE); optional double precipitation; {temp_max_column} \
         optional double temp_min; optional double wind; optional binary weather (STRING); }}"
    );
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let schema = Arc::new(parse_message_type(&schema)?);
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    let defined = vec![1_i16; days.len()];
    let mut column_index = 0;
    while let Some(mut column) = group.next_column()? {
        match (column_index, temp_max) {
            (0, _) => {
                let values: Vec<i32> = days.iter().map(|day| day.days_since_1970).collect();
                column.typed::<Int32Type>().write_batch(&values, Some(&defined), None)?;
            }
            (2, TempMax::Text) => {
                let values: Vec<ByteArray> =
                    days.iter().map(|day| ByteArray::from(day.temp_max_c.to_string().as_str())).collect();
                column.typed::<ByteArrayType>().write_batch(&values, Some(&defined), None)?;
            }
            (5, _) => {
                let values: Vec<ByteArray> = days.iter().map(|day| ByteArray::from(day.weather.as_str())).collect();
                column.typed::<ByteArrayType>().write_batch(&values, Some(&defined), None)?;
            }
            (index, _) => {
                let values: Vec<f64> = days.iter().map(|day| double_column(day, index)).collect();
                column.typed::<DoubleType>().write_batch(&values, Some(&defined), None)?;
            }
        }
        column.close()?;
        column_index += 1;
    }
    group.close()?;
    Ok(writer.into_inner()?.into())
}

fn double_column(day: &Day, index: usize) -> f64 {
    match index {
        1 => day.precipitation_mm,
        2 => day.temp_max_c,
        3 => day.temp_min_c,
        _ => day.wind_m_s,
    }
}

/// An `add` action for a file of one month.
pub fn add_action(path: &str, size_bytes: usize, month: (i32, u8), rows: usize, now_ms: i64) -> Value {
    json!({"add": {
        "path": path,
        "partitionValues": {"year": month.0.to_string(), "month": month.1.to_string()},
        "size": size_bytes,
        "modificationTime": now_ms,
        "dataChange": true,
        "stats": json!({"numRecords": rows}).to_string(),
    }})
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    #[test]
    fn four_years_of_days_in_forty_eight_months() {
        let months = months().unwrap();
        assert_eq!(months.len(), 48);
        assert_eq!(months.values().map(Vec::len).sum::<usize>(), 1_461);
        let first = &months[&(2012, 1)][0];
        assert_eq!((first.date.as_str(), first.days_since_1970), ("2012-01-01", 15_340));
        let leap = months[&(2012, 2)].last().unwrap();
        assert_eq!((leap.date.as_str(), leap.days_since_1970), ("2012-02-29", 15_399));
    }

    #[test]
    fn files_read_back_with_their_rows() {
        let months = months().unwrap();
        for temp_max in [TempMax::Double, TempMax::Text] {
            let bytes = parquet_file(&months[&(2013, 7)], temp_max).unwrap();
            let reader = SerializedFileReader::new(bytes).unwrap();
            assert_eq!(reader.metadata().file_metadata().num_rows(), 31);
            assert_eq!(reader.get_row_iter(None).unwrap().count(), 31);
        }
    }
}
