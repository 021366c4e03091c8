use super::*;
use crate::commit::sql::{Expr, parse_day, parse_instant, truth_of};
use crate::delta::footer::{Bound, LeafFacts};

fn int(value: i128) -> Option<Datum> {
    Some(Datum::Int(value))
}

fn text(value: &str) -> Option<Datum> {
    Some(Datum::Text(value.to_owned()))
}

/// Columns in the order of their slots.
const COLUMNS: [&str; 6] = ["a", "b", "s", "d", "ts", "f"];

fn bound_expr(text: &str) -> Expr {
    let expr = Expr::parse(text).unwrap();
    expr.bind(&mut |path| {
        let name = path.join(".").to_lowercase();
        let slot = COLUMNS.iter().position(|column| **column == name);
        slot.map(Expr::Slot).ok_or_else(|| format!("no column {name}"))
    })
    .unwrap()
}

fn row() -> Vec<Option<Datum>> {
    let instant = parse_instant("2024-02-29 13:45:06.789").map(Datum::Instant);
    vec![int(7), None, text("Hello"), parse_day("2024-02-29").map(Datum::Day), instant, Some(Datum::Float(f64::NAN))]
}

#[test]
fn conditions_have_three_values() {
    for (condition, expected) in [
        ("a > 5", Some(true)),
        ("`a` >= 7 AND A <= 7", Some(true)),
        ("a > 5 and b > 5", None),
        ("a > 9 and b > 5", Some(false)),
        ("a > 5 or b > 5", Some(true)),
        ("not b = 1", None),
        ("b is null and a is not null", Some(true)),
        ("a in (1, 7)", Some(true)),
        ("a in (1, null)", None),
        ("a not in (1, 2)", Some(true)),
        ("a between 1 and 7", Some(true)),
        ("a not between 8 and 9", Some(true)),
        ("a <=> b", Some(false)),
        ("b <=> null", Some(true)),
        ("s like 'He%o'", Some(true)),
        ("s like '_ell_'", Some(true)),
        ("s not like '%x%'", Some(true)),
        ("length(s) = 5 and upper(s) = 'HELLO'", Some(true)),
        ("substring(s, 2, 3) = 'ell'", Some(true)),
        ("s || '!' = 'Hello!'", Some(true)),
        ("a + 1.5 = 8.5", Some(true)),
        ("a % 2 = 1 and a * 2 - 1 = 13", Some(true)),
        ("-a < -6", Some(true)),
        ("14 / a = 2", Some(true)),
        ("d = '2024-02-29'", Some(true)),
        ("d >= date '2024-02-29' and d < timestamp '2024-02-29 00:00:01'", Some(true)),
        ("year(d) = 2024 and month(ts) = 2 and day(ts) = 29 and hour(ts) = 13", Some(true)),
        ("date(ts) = d and cast(ts as date) = d", Some(true)),
        ("date_format(ts, 'yyyy-MM') = '2024-02'", Some(true)),
        ("date_trunc('month', ts) = '2024-02-01 00:00:00'", Some(true)),
        ("ts > '2024-02-29T13:45:06.788Z' and ts < '2024-02-29 14:00:00+00:00'", Some(true)),
        ("f > 1e300", Some(true)),
        ("isnan(f)", Some(true)),
        ("coalesce(b, a) = 7", Some(true)),
        ("case when a > 5 then s else 'x' end = 'Hello'", Some(true)),
        ("case a when 1 then false else true end", Some(true)),
        ("cast(a as string) = '7' and cast('8' as int) = a + 1", Some(true)),
        ("if(a > 1, a, b) = 7", Some(true)),
        ("true", Some(true)),
        ("null", None),
        ("a = 7L", Some(true)),
    ] {
        assert_eq!(truth_of(&bound_expr(condition), &row()), Ok(expected), "{condition}");
    }
}

#[test]
fn what_is_not_computed_alike_everywhere_has_no_result() {
    for condition in [
        "a / 2 = 3",
        "s > 5",
        "s",
        "rand() > 0.5",
        "cast(s as int) = 1",
        "a / 0 = 1",
        "a + 9223372036854775807 > 0",
        "cast(f as string) = 'x'",
    ] {
        assert!(truth_of(&bound_expr(condition), &row()).is_err(), "{condition}");
    }
    // One side decides.
    assert_eq!(truth_of(&bound_expr("a = 1 and rand() > 0.5"), &row()), Ok(Some(false)));
    for bad in [
        "",
        "a >",
        "a > 5)",
        "(a",
        "\"a\" > 1",
        "a > 'x",
        "select 1",
        "a rlike 'x'",
        "a = 'x\\'",
        "a ? 1",
        "interval 1 day > a",
        "1x > 2",
        &"(".repeat(100),
        &"a and ".repeat(2_000),
    ] {
        assert!(Expr::parse(bad).is_err(), "{bad}");
    }
}

fn facts(low: Datum, high: Datum, nulls: Option<u64>) -> Range {
    let bound = |value| Some(Bound { value, is_exact: true });
    let may_be_nan = matches!(low, Datum::Float(_));
    Range::of_facts(&LeafFacts { rows: 10, nulls, low: bound(low), high: bound(high), may_be_nan })
}

fn slots() -> Vec<Range> {
    let instant = |text: &str| Datum::Instant(parse_instant(text).unwrap());
    let mut cut = facts(Datum::Text("ba".into()), Datum::Text("bz".into()), Some(0));
    cut.low.as_mut().unwrap().is_exact = false;
    cut.high.as_mut().unwrap().is_exact = false;
    vec![
        facts(Datum::Int(1), Datum::Int(9), Some(0)),
        facts(Datum::Int(1), Datum::Int(9), Some(2)),
        cut,
        Range::point(Datum::Day(parse_day("2024-02-29").unwrap())),
        facts(instant("2024-02-29 01:00:00"), instant("2024-02-29 23:00:00"), Some(0)),
        facts(Datum::Float(1.0), Datum::Float(2.0), Some(0)),
    ]
}

#[test]
fn bounds_prove_refute_or_leave_open() {
    for (condition, expected) in [
        ("a > 0", "proved"),
        ("a >= 1 and a <= 9", "proved"),
        ("a > 1", "refuted"),
        ("a < 9", "refuted"),
        ("a > 5", "refuted"),
        ("a <> 5", "open"),
        ("a <> 0", "proved"),
        ("a <> 1", "refuted"),
        ("a = 1", "refuted"),
        ("a in (0, 20)", "refuted"),
        ("a in (1, 5)", "open"),
        ("a not in (0, 20)", "proved"),
        ("a not in (0, 9)", "refuted"),
        ("not (a < 1 or a > 9)", "proved"),
        ("a > 20 or a > 0", "proved"),
        ("a > 20 or a > 1", "refuted"),
        ("a > 2 or a < 3", "open"),
        ("b > 0", "refuted"),
        ("b > 0 or b is null", "open"),
        ("b is null", "refuted"),
        ("b is not null", "refuted"),
        ("a is not null", "proved"),
        ("s > 'a'", "proved"),
        ("s > 'bb'", "open"),
        ("s > 'c'", "refuted"),
        ("s > 5", "open"),
        ("a > '0'", "proved"),
        ("f > 0.5", "proved"),
        ("f < 3", "open"),
        ("f < 2", "refuted"),
        ("a + 1 > 1", "proved"),
        ("a - 9 <= 0", "proved"),
        ("a + a > 1", "proved"),
        ("a + a > 17", "open"),
        ("a + 1 > 2", "refuted"),
        ("-a < 0", "proved"),
        ("d <=> date(ts)", "proved"),
        ("d <=> cast(ts as date)", "proved"),
        ("year(ts) = 2024 and month(ts) = 2 and day(ts) = 29", "proved"),
        ("hour(ts) > 0", "proved"),
        ("hour(ts) > 1", "refuted"),
        ("date_format(ts, 'yyyy-MM-dd') <=> '2024-02-29'", "proved"),
        ("date_add(ts, 1) > d", "open"),
        ("d <=> date(ts) and d = '2024-02-28'", "refuted"),
        ("b <=> a", "refuted"),
        ("a <=> 5", "refuted"),
        ("not (a <=> 0)", "proved"),
        ("length(s) > 1", "open"),
        ("cast(a as bigint) <=> a", "open"),
        ("1 = 1", "proved"),
        ("1 = 2", "refuted"),
    ] {
        let found = truth(&bound_expr(condition), &slots());
        assert!(!found.always || !found.has_witness, "{condition}: {found:?}");
        let verdict = match (found.always, found.has_witness) {
            (true, _) => "proved",
            (_, true) => "refuted",
            _ => "open",
        };
        assert_eq!(verdict, expected, "{condition}: {found:?}");
    }
}

/// Whatever bounds say holds of every row that they are the bounds of.
#[test]
fn bounds_never_contradict_rows() {
    let conditions = [
        "a > 3",
        "a < 3",
        "a >= 3",
        "a <= 3",
        "a = 3",
        "a <> 3",
        "a <=> 3",
        "a <=> b",
        "a = b",
        "a < b",
        "not a >= b",
        "a in (1, 3)",
        "a not in (2, null)",
        "a is null",
        "a is not null or b = 2",
        "a + b > 4",
        "a - b < 1",
        "-a > -3",
        "a between 2 and 4",
        "not (a between 2 and 4)",
        "f > 1",
        "f < 1",
        "f = 0",
        "f <> 0",
        "f <=> a",
        "f >= a",
        "not (f > 1 and a > 1)",
        "case when a > 1 then true end",
        "floor(f) >= 1",
        "a = 1 or b = 2 or f = 0",
    ];
    let mut state = 7_u64;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let floats = [0.0, -0.0, 1.0, 1.5, 2.0, f64::NAN, f64::INFINITY];
    let mut decided = 0;
    for _ in 0..3_000 {
        let size = 1 + next(3);
        let rows: Vec<Vec<Option<Datum>>> = (0..size)
            .map(|_| {
                let mut value = || (next(6) > 0).then(|| Datum::Int(i128::from(next(5))));
                let (a, b) = (value(), value());
                let f = (next(6) > 0).then(|| Datum::Float(floats[next(7) as usize]));
                vec![a, b, None, None, None, f]
            })
            .collect();
        let slots: Vec<Range> = (0..6).map(|slot| range_of(&rows, slot)).collect();
        for condition in conditions {
            let expr = bound_expr(condition);
            let found = truth(&expr, &slots);
            let truths: Vec<_> = rows.iter().map(|row| truth_of(&expr, row)).collect();
            let holds = truths.iter().filter(|truth| **truth == Ok(Some(true))).count();
            let say = || format!("{condition}: {found:?} of {rows:?}");
            assert!(!found.always || holds == rows.len(), "{}", say());
            assert!(!found.never || holds == 0, "{}", say());
            assert!(!found.has_witness || holds < rows.len(), "{}", say());
            decided += usize::from(found.always || found.has_witness);
        }
    }
    assert!(decided > 10_000, "{decided}");
}

fn range_of(rows: &[Vec<Option<Datum>>], slot: usize) -> Range {
    let values: Vec<&Datum> = rows.iter().filter_map(|row| row[slot].as_ref()).collect();
    let plain: Vec<&Datum> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    let end = |wanted| {
        let found = plain.iter().copied().reduce(|a, b| if b.compare(a) == Some(wanted) { b } else { a });
        found.map(|value| Bound { value: value.clone(), is_exact: true })
    };
    Range::of_facts(&LeafFacts {
        rows: rows.len() as u64,
        nulls: Some((rows.len() - values.len()) as u64),
        low: end(std::cmp::Ordering::Less),
        high: end(std::cmp::Ordering::Greater),
        may_be_nan: values.iter().any(|value| value.is_nan()),
    })
}

#[test]
fn rules_come_from_properties_and_fields() {
    let schema = crate::delta::schema::Schema::parse(
        r#"{"type":"struct","fields":[
            {"name":"x","type":"long","nullable":true,"metadata":{"delta.invariants":"{\"expression\":{\"expression\":\"x > 3\"}}"}},
            {"name":"y","type":"integer","nullable":true,"metadata":{"delta.generationExpression":"x + 1"}},
            {"name":"odd","type":"string","nullable":true,"metadata":{}}]}"#,
    )
    .unwrap();
    let configuration =
        [("delta.constraints.c", "x < 9 AND odd rlike 'z'"), ("delta.constraints.d", "x.y > 0"), ("other", "x")];
    let metadata = Metadata {
        configuration: configuration.map(|(name, text)| (name.to_owned(), Some(text.to_owned()))).into(),
        ..Metadata::default()
    };
    let rules = rules_of(&metadata, &schema);
    let short: Vec<(RuleKind, &str, bool)> =
        rules.iter().map(|rule| (rule.kind, rule.name.as_str(), rule.expr.is_ok())).collect();
    assert_eq!(
        short,
        [
            (RuleKind::Check, "c", false),
            (RuleKind::Check, "d", true),
            (RuleKind::Invariant, "x", true),
            (RuleKind::Generated, "y", true)
        ]
    );
    let guarded: Vec<String> =
        guarded_columns(&metadata, &schema).into_iter().map(|(column, _)| column.join(".")).collect();
    assert_eq!(guarded, ["x", "odd", "x.y", "x", "x"]);
    assert_eq!(check_policy(&metadata), Ok(()));
    let odd = Metadata { configuration: [(POLICY.to_owned(), Some("maybe".to_owned()))].into(), ..Metadata::default() };
    assert!(check_policy(&odd).is_err());
    assert_eq!(policy_of(&odd), Policy::Evaluate);
}
