//! A file whose rows match is never excluded, whatever writers do to statistics; and exact ones exclude what they can.

use std::cmp::Ordering;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::files::{Table, declaring, deleting, deleting_as};
use crate::commit::read_set::{Domain, Reads};
use crate::commit::sql::parse_instant;
use crate::delta::footer::{Datum, day_of};

const COLUMNS: [(&str, &str); 9] = [
    ("id", "long"),
    ("name", "string"),
    ("price", "double"),
    ("at", "timestamp"),
    ("amount", "decimal(20,4)"),
    ("day", "date"),
    ("small", "float"),
    ("p", "string"),
    ("q", "timestamp"),
];
/// From here on, columns are partition columns.
const FIRST_PARTITION: usize = 7;

/// Texts that a reader of predicates could stumble over.
const ODD_TEXTS: [&str; 14] = [
    "null",
    "true",
    "5",
    "it's",
    "a'' OR 'b",
    "x\\y",
    "\\'",
    "a) AND (id#10L = 3",
    "a)) AND ((id#10L = 3",
    "a AND b",
    "(",
    "--",
    "a, b",
    " a ",
];

#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Long(i64),
    Text(String),
    Double(f64),
    Float(f32),
    /// Year, day of January, second, microsecond.
    At(i32, u8, u8, u32),
    /// Ten-thousandths.
    Amount(i64),
    Day(i32, u8),
}

type Row = Vec<Option<Cell>>;

/// As Spark orders: NaN is above all and equals itself, zeros are equal.
fn order(a: &Cell, b: &Cell) -> Ordering {
    let floats = |a: f64, b: f64| match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => a.partial_cmp(&b).unwrap(),
    };
    match (a, b) {
        (Cell::Long(a), Cell::Long(b)) | (Cell::Amount(a), Cell::Amount(b)) => a.cmp(b),
        (Cell::Text(a), Cell::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Cell::Double(a), Cell::Double(b)) => floats(*a, *b),
        (Cell::Float(a), Cell::Float(b)) => floats(f64::from(*a), f64::from(*b)),
        (Cell::At(a, b, c, d), Cell::At(e, f, g, h)) => (a, b, c, d).cmp(&(e, f, g, h)),
        (Cell::Day(a, b), Cell::Day(c, d)) => (a, b).cmp(&(c, d)),
        _ => panic!("{a:?} {b:?}"),
    }
}

fn is_nan(cell: &Cell) -> bool {
    matches!(cell, Cell::Double(value) if value.is_nan()) || matches!(cell, Cell::Float(value) if value.is_nan())
}

fn amount(units: i64) -> String {
    let sign = if units < 0 { "-" } else { "" };
    format!("{sign}{}.{:04}", units.unsigned_abs() / 10_000, units.unsigned_abs() % 10_000)
}

/// As a predicate writes it.
fn literal(cell: &Cell) -> Value {
    match cell {
        Cell::Long(value) => json!(value),
        Cell::Text(text) => json!(text),
        Cell::Double(value) => json!(value),
        Cell::Float(value) => json!(f64::from(*value)),
        Cell::At(year, day, second, micros) => json!(format!("{year}-01-{day:02}T00:00:{second:02}.{micros:06}Z")),
        Cell::Amount(units) => json!(amount(*units)),
        Cell::Day(year, day) => json!(format!("{year}-01-{day:02}")),
    }
}

/// As a file holds it.
fn datum(cell: &Cell) -> Datum {
    match cell {
        Cell::Long(value) => Datum::Int((*value).into()),
        Cell::Text(text) => Datum::Text(text.clone()),
        Cell::Double(value) => Datum::Float(*value),
        Cell::Float(value) => Datum::Float((*value).into()),
        Cell::At(..) => Datum::Instant(parse_instant(literal(cell).as_str().unwrap()).unwrap()),
        Cell::Amount(units) => Datum::Decimal { unscaled: (*units).into(), scale: 4 },
        Cell::Day(year, day) => Datum::Day(day_of((*year).into(), 1, (*day).into()).unwrap()),
    }
}

/// Whether a row may be one that was read.
fn may_match(table: &Table, reads: &Reads, row: &Row) -> bool {
    let bound = reads.bind(table.facts());
    let slots: Vec<Domain> = bound
        .columns()
        .iter()
        .map(|column| {
            let at = COLUMNS.iter().position(|(name, _)| *name == column.path[0]).unwrap();
            Domain::of_row(row[at].as_ref().map(datum).as_ref(), &column.kind)
        })
        .collect();
    bound.may_match(&slots)
}

/// Everything in it is compared exactly: no floats, no decimals that may have gone through floats, nothing odd.
fn is_exact(tree: &Tree) -> bool {
    match tree {
        Tree::Compare(column, ..) | Tree::In(column, _) => ![2, 4, 6].contains(column),
        Tree::IsNull(_) => true,
        Tree::And(parts) | Tree::Or(parts) => parts.iter().all(is_exact),
        Tree::Not(part) => is_exact(part),
        Tree::Odd => false,
    }
}

fn cells(column: usize) -> BoxedStrategy<Cell> {
    let time = (prop_oneof![Just(1960), Just(2024)], 1_u8..4, 0_u8..3, 0_u32..4_000)
        .prop_map(|(year, day, second, micros)| Cell::At(year, day, second, micros));
    match column {
        0 => prop_oneof![-4_i64..5, Just(i64::MAX), Just(i64::MIN), Just(9_007_199_254_740_993)]
            .prop_map(Cell::Long)
            .boxed(),
        1 => prop_oneof![
            "[abü]{0,2}",
            "[x]{30,34}[a-c\u{1f600}\u{10ffff}]{0,3}",
            "[é]{31,33}[a-b]{0,2}",
            "\u{10ffff}{31,33}",
            prop::sample::select(&ODD_TEXTS[..]).prop_map(str::to_owned)
        ]
        .prop_map(Cell::Text)
        .boxed(),
        2 => prop_oneof![
            (-3_i32..4).prop_map(|value| f64::from(value) / 2.0),
            Just(-0.0),
            Just(f64::NAN),
            Just(f64::INFINITY),
            Just(0.1),
            Just(1e300)
        ]
        .prop_map(Cell::Double)
        .boxed(),
        3 | 8 => time.boxed(),
        4 => prop_oneof![-20_000_i64..20_000, 123_456_789_012_345_670_i64..123_456_789_012_345_690]
            .prop_map(Cell::Amount)
            .boxed(),
        5 => (prop_oneof![Just(1960), Just(2024)], 1_u8..8).prop_map(|(year, day)| Cell::Day(year, day)).boxed(),
        6 => prop_oneof![Just(0.1_f32), Just(0.3), Just(-0.0), Just(f32::NAN), Just(16_777_216.0), Just(0.7)]
            .prop_map(Cell::Float)
            .boxed(),
        _ => "[ab]{1,2}".prop_map(Cell::Text).boxed(),
    }
}

#[derive(Clone, Debug)]
enum Tree {
    Compare(usize, &'static str, Option<Cell>),
    In(usize, Vec<Option<Cell>>),
    IsNull(usize),
    And(Vec<Tree>),
    Or(Vec<Tree>),
    Not(Box<Tree>),
    Odd,
}

fn to_json(tree: &Tree) -> Value {
    let value = |cell: &Option<Cell>| cell.as_ref().map_or(Value::Null, literal);
    let all = |parts: &[Tree]| parts.iter().map(to_json).collect::<Vec<_>>();
    match tree {
        Tree::Compare(column, op, cell) => json!({"op": op, "col": [COLUMNS[*column].0], "value": value(cell)}),
        Tree::In(column, options) => {
            json!({"op": "in", "col": COLUMNS[*column].0, "values": options.iter().map(value).collect::<Vec<_>>()})
        }
        Tree::IsNull(column) => json!({"op": "isNull", "col": COLUMNS[*column].0}),
        Tree::And(parts) => json!({"op": "and", "args": all(parts)}),
        Tree::Or(parts) => json!({"op": "or", "args": all(parts)}),
        Tree::Not(part) => json!({"op": "not", "args": [to_json(part)]}),
        Tree::Odd => json!({"op": "odd"}),
    }
}

/// As delta-rs prints it.
fn to_sql(tree: &Tree) -> String {
    let value = |cell: &Option<Cell>| match cell {
        None => "NULL".to_owned(),
        Some(Cell::Text(text)) => format!("'{}'", text.replace('\'', "''")),
        Some(Cell::Double(value)) => format!("{value}"),
        Some(Cell::Float(value)) => format!("{}", f64::from(*value)),
        Some(cell @ Cell::At(..)) => {
            let text = literal(cell).as_str().unwrap().replace('Z', "");
            format!("arrow_cast('{text}', 'Timestamp(Microsecond, Some(\"UTC\"))')")
        }
        Some(Cell::Amount(units)) => format!("'{units}'::decimal(20, 4)"),
        Some(cell @ Cell::Day(..)) => format!("'{}'::date", literal(cell).as_str().unwrap()),
        Some(cell) => literal(cell).to_string(),
    };
    let all = |parts: &[Tree], by: &str| {
        let parts: Vec<String> = parts.iter().map(|part| format!("({})", to_sql(part))).collect();
        parts.join(by)
    };
    match tree {
        Tree::Compare(column, op, cell) => format!("{} {op} {}", COLUMNS[*column].0, value(cell)),
        Tree::In(column, options) => {
            let options: Vec<String> = options.iter().map(value).collect();
            format!("{} IN ({})", COLUMNS[*column].0, options.join(", "))
        }
        Tree::IsNull(column) => format!("{} IS NULL", COLUMNS[*column].0),
        Tree::And(parts) => all(parts, " AND "),
        Tree::Or(parts) => all(parts, " OR "),
        Tree::Not(part) => format!("NOT ({})", to_sql(part)),
        Tree::Odd => "odd(id) BETWEEN 1 AND 2".to_owned(),
    }
}

/// As Spark prints it.
fn to_spark(tree: &Tree) -> String {
    let column = |column: &usize| {
        let suffix = if *column == 0 { "L" } else { "" };
        format!("{}#{}{suffix}", COLUMNS[*column].0, column + 10)
    };
    let value = |cell: &Option<Cell>| match cell {
        None => "null".to_owned(),
        Some(Cell::Float(value)) => format!("{value}"),
        Some(cell @ Cell::At(..)) => literal(cell).as_str().unwrap().replace('T', " ").replace('Z', ""),
        Some(cell) => literal(cell).as_str().map_or_else(|| literal(cell).to_string(), str::to_owned),
    };
    let fold = |parts: &[Tree], by: &str| {
        let mut texts = parts.iter().map(to_spark);
        let first = texts.next().unwrap();
        texts.fold(first, |all, one| format!("({all} {by} {one})"))
    };
    match tree {
        Tree::Compare(at, "<>", cell) => format!("NOT ({} = {})", column(at), value(cell)),
        Tree::Compare(at, op, cell) => format!("({} {op} {})", column(at), value(cell)),
        Tree::In(at, options) => {
            let options: Vec<String> = options.iter().map(value).collect();
            format!("{} IN ({})", column(at), options.join(","))
        }
        Tree::IsNull(at) => format!("isnull({})", column(at)),
        Tree::And(parts) => fold(parts, "AND"),
        Tree::Or(parts) => fold(parts, "OR"),
        Tree::Not(part) => format!("NOT {}", to_spark(part)),
        Tree::Odd => "(odd(id#10L) > 3)".to_owned(),
    }
}

/// SQL's three values; what is odd may be anything, so here it holds.
fn holds(tree: &Tree, row: &Row, under_not: bool) -> Option<bool> {
    match tree {
        Tree::Compare(column, op, cell) => {
            let order = order(row[*column].as_ref()?, cell.as_ref()?);
            Some(match *op {
                "=" => order.is_eq(),
                "<>" => order.is_ne(),
                "<" => order.is_lt(),
                "<=" => order.is_le(),
                ">" => order.is_gt(),
                _ => order.is_ge(),
            })
        }
        Tree::In(column, options) => {
            let own = row[*column].as_ref()?;
            let found = options.iter().flatten().any(|option| order(own, option).is_eq());
            if found {
                Some(true)
            } else if options.contains(&None) {
                None
            } else {
                Some(false)
            }
        }
        Tree::IsNull(column) => Some(row[*column].is_none()),
        Tree::And(parts) => {
            let all: Vec<_> = parts.iter().map(|part| holds(part, row, under_not)).collect();
            if all.contains(&Some(false)) {
                Some(false)
            } else if all.contains(&None) {
                None
            } else {
                Some(true)
            }
        }
        Tree::Or(parts) => {
            let all: Vec<_> = parts.iter().map(|part| holds(part, row, under_not)).collect();
            if all.contains(&Some(true)) {
                Some(true)
            } else if all.contains(&None) {
                None
            } else {
                Some(false)
            }
        }
        Tree::Not(part) => holds(part, row, !under_not).map(|held| !held),
        Tree::Odd => Some(!under_not),
    }
}

fn trees() -> BoxedStrategy<Tree> {
    let ops = prop_oneof![Just("="), Just("<>"), Just("<"), Just("<="), Just(">"), Just(">=")];
    let compare = (0..COLUMNS.len(), ops).prop_flat_map(|(column, op)| {
        prop::option::weighted(0.95, cells(column))
            // JSON has no number for it.
            .prop_filter("NaN", |cell| !cell.as_ref().is_some_and(is_unwritable))
            .prop_map(move |cell| Tree::Compare(column, op, cell))
    });
    let list = (0..COLUMNS.len()).prop_flat_map(|column| {
        prop::collection::vec(prop::option::weighted(0.9, cells(column)), 1..4)
            .prop_filter("NaN", |cells| !cells.iter().flatten().any(is_unwritable))
            .prop_map(move |cells| Tree::In(column, cells))
    });
    let leaf = prop_oneof![
        8 => compare, 2 => list, 1 => (0..COLUMNS.len()).prop_map(Tree::IsNull), 1 => Just(Tree::Odd)
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..3).prop_map(Tree::And),
            prop::collection::vec(inner.clone(), 1..3).prop_map(Tree::Or),
            inner.prop_map(|part| Tree::Not(Box::new(part))),
        ]
    })
    .boxed()
}

fn is_unwritable(cell: &Cell) -> bool {
    is_nan(cell) || matches!(cell, Cell::Double(value) if value.is_infinite())
}

/// How a writer maltreats its statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Exact,
    /// 32 characters, the upper end with a character above all.
    Spark,
    /// 64 bytes or 32 characters, simply cut; numbers through floats.
    DeltaRs,
}

fn bound(cell: &Cell, writer: Writer, is_max: bool) -> Value {
    match cell {
        Cell::Text(text) if text.chars().count() > 32 && writer != Writer::Exact => {
            let mut cut: String = text.chars().take(32).collect();
            if is_max && writer == Writer::Spark {
                cut.push('\u{10ffff}');
            }
            json!(cut)
        }
        Cell::At(year, day, second, micros) if writer != Writer::Exact => {
            json!(format!("{year}-01-{day:02}T00:00:{second:02}.{:03}Z", micros / 1_000))
        }
        Cell::Amount(units) if writer != Writer::Exact => {
            #[allow(clippy::cast_precision_loss, reason = "what a writer does")]
            let value = *units as f64 / 10_000.0;
            json!(value)
        }
        Cell::Double(value) if value.is_infinite() => json!("Infinity"),
        // The shortest decimal of 32 bits.
        Cell::Float(value) => serde_json::from_str(&format!("{value}")).unwrap_or(Value::Null),
        cell => literal(cell),
    }
}

fn stats(rows: &[Row], writer: Writer, told: &[bool]) -> Value {
    let (mut min, mut max, mut nulls) = (Map::new(), Map::new(), Map::new());
    for (column, (name, _)) in COLUMNS.iter().enumerate().take(FIRST_PARTITION).filter(|(column, _)| told[*column]) {
        let mut values: Vec<&Cell> = rows.iter().filter_map(|row| row[column].as_ref()).collect();
        nulls.insert((*name).to_owned(), json!(rows.len() - values.len()));
        values.retain(|cell| !is_nan(cell));
        values.sort_by(|a, b| order(a, b));
        if let (Some(low), Some(high)) = (values.first(), values.last()) {
            min.insert((*name).to_owned(), bound(low, writer, false));
            max.insert((*name).to_owned(), bound(high, writer, true));
        }
    }
    json!({"numRecords": rows.len(), "minValues": min, "maxValues": max, "nullCount": nulls})
}

fn table() -> Table {
    let columns: Vec<(&str, Value)> = COLUMNS.iter().map(|(name, kind)| (*name, json!(kind))).collect();
    Table::new(&columns, &["p", "q"])
}

/// In one of the two spellings of the protocol.
fn partition_value(cell: &Option<Cell>, spelled_with_zone: bool) -> Value {
    match cell {
        Some(Cell::At(..)) if !spelled_with_zone => {
            let text = literal(cell.as_ref().unwrap());
            json!(text.as_str().unwrap().replace('T', " ").replace('Z', ""))
        }
        Some(cell) => literal(cell),
        None if spelled_with_zone => json!(null),
        None => json!(""),
    }
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let row = (0..FIRST_PARTITION).map(|column| prop::option::weighted(0.85, cells(column))).collect::<Vec<_>>();
    let partition: Vec<_> =
        (FIRST_PARTITION..COLUMNS.len()).map(|column| prop::option::weighted(0.8, cells(column))).collect();
    (prop::collection::vec(row, 1..5), partition).prop_map(|(rows, partition)| {
        rows.into_iter().map(|row| row.into_iter().chain(partition.iter().cloned()).collect()).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_file_with_a_row_that_matches_is_touched(
        rows in rows(),
        tree in trees(),
        writer in prop_oneof![Just(Writer::Exact), Just(Writer::Spark), Just(Writer::DeltaRs)],
        told in prop::collection::vec(prop::bool::weighted(0.8), COLUMNS.len()),
        spelled_with_zone in any::<bool>(),
    ) {
        let spark = json!([to_spark(&tree)]).to_string();
        let forms = [
            declaring(json!([to_json(&tree)])),
            deleting(&to_sql(&tree)),
            deleting_as("Apache-Spark/3.5 Delta-Lake/3.2", &spark),
        ];
        let partition = json!({
            "p": partition_value(&rows[0][7], spelled_with_zone), "q": partition_value(&rows[0][8], spelled_with_zone)
        });
        let stats = stats(&rows, writer, &told);
        if rows.iter().any(|row| holds(&tree, row, false) == Some(true)) {
            for reads in forms {
                prop_assert!(table().touches(&reads, &partition, &stats).is_some(), "{partition} {stats} {reads:?}");
            }
        }
    }

    #[test]
    fn a_row_matches_as_sql_says(rows in rows(), tree in trees()) {
        let (table, declared) = (table(), declaring(json!([to_json(&tree)])));
        let spark = json!([to_spark(&tree)]).to_string();
        let texts = [deleting(&to_sql(&tree)), deleting_as("Apache-Spark/3.5 Delta-Lake/3.2", &spark)];
        for row in &rows {
            let is_read = holds(&tree, row, false) == Some(true);
            let found = may_match(&table, &declared, row);
            prop_assert!(found || !is_read, "{row:?} {tree:?}");
            if is_exact(&tree) {
                prop_assert_eq!(found, is_read, "{:?} {:?}", row, tree);
            }
            for reads in &texts {
                prop_assert!(may_match(&table, reads, row) || !is_read, "{row:?} {reads:?}");
            }
        }
    }

    #[test]
    fn exact_statistics_exclude_what_lies_beside_them(low in -50_i64..50, size in 0_i64..20, other in -60_i64..80) {
        let stats = json!({"numRecords": 2, "minValues": {"id": low}, "maxValues": {"id": low + size},
            "nullCount": {"id": 0}});
        let touches = |op: &str| {
            let reads = declaring(json!([{"op": op, "col": "id", "value": other}]));
            table().touches(&reads, &json!({}), &stats).is_some()
        };
        let high = low + size;
        let in_list = declaring(json!([{"op": "in", "col": "id", "values": [other, other + 100, other - 100]}]));
        let expected = [other, other + 100, other - 100].iter().any(|one| (low..=high).contains(one));
        prop_assert_eq!(table().touches(&in_list, &json!({}), &stats).is_some(), expected);
        prop_assert_eq!(touches("="), (low..=high).contains(&other));
        prop_assert_eq!(touches("<"), low < other);
        prop_assert_eq!(touches("<="), low <= other);
        prop_assert_eq!(touches(">"), high > other);
        prop_assert_eq!(touches(">="), high >= other);
        prop_assert_eq!(touches("<>"), !(low == high && low == other));
    }
}

proptest! {
    // Hundreds of predicates each.
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_row_is_found_by_its_own_values(
        rows in rows(),
        writer in prop_oneof![Just(Writer::Exact), Just(Writer::Spark), Just(Writer::DeltaRs)],
        spelled_with_zone in any::<bool>(),
    ) {
        let partition = json!({
            "p": partition_value(&rows[0][7], spelled_with_zone), "q": partition_value(&rows[0][8], spelled_with_zone)
        });
        let stats = stats(&rows, writer, &[true; COLUMNS.len()]);
        let table = table();
        let cells = rows.iter().flat_map(|row| row.iter().cloned().enumerate());
        for (column, cell) in cells.filter(|(_, cell)| !cell.as_ref().is_some_and(is_unwritable)) {
            let compare = |op| Tree::Compare(column, op, cell.clone());
            let trees = match &cell {
                None => vec![Tree::IsNull(column)],
                Some(_) => vec![
                    compare("="), compare("<="), compare(">="), Tree::In(column, vec![cell.clone()]),
                    Tree::Not(Box::new(compare("<>"))), Tree::Not(Box::new(compare("<"))),
                    Tree::Not(Box::new(compare(">"))), Tree::Not(Box::new(Tree::IsNull(column))),
                ],
            };
            for tree in trees {
                let spark = json!([to_spark(&tree)]).to_string();
                for reads in [
                    declaring(json!([to_json(&tree)])),
                    deleting(&to_sql(&tree)),
                    deleting_as("Apache-Spark/3.5 Delta-Lake/3.2", &spark),
                ] {
                    prop_assert!(table.touches(&reads, &partition, &stats).is_some(), "{tree:?} {partition} {stats}");
                }
            }
        }
    }
}
