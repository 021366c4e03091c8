//! Plans of the shapes that engines send.
use super::*;

struct Shown {
    ranges: Vec<String>,
    probes: Vec<String>,
    plan: Plan,
}

/// Ranges by the rows of a sample that they hold, each row as `a/b`.
fn show(keys: &[(&str, &str)], rows: &[&[&str]], expression: &str, max: usize) -> Shown {
    let keys = columns(keys);
    let types = types(&keys);
    let compiled = compile(expression, &keys, Mode::Lenient).unwrap();
    let plan = plan(&compiled, &Layout::of_table(&types, keys.len()), max);
    let order: Vec<usize> = (0..keys.len()).collect();
    let held = |range: &KeyRange| {
        let in_range = rows.iter().filter(|values| range.contains(&key_of(&types, &order, &row(values))));
        in_range.map(|values| values.join("/")).collect::<Vec<_>>().join(" ")
    };
    let ranges = plan.ranges.iter().map(held).collect();
    let probes = plan
        .probes
        .iter()
        .map(|probe| {
            format!("{} {}: {}", probe.position, if probe.is_certain { "all" } else { "some" }, held(&probe.range))
        })
        .collect();
    Shown { ranges, probes, plan }
}

const DAYS: &[(&str, &str)] = &[("dt", "string"), ("region", "string")];
const DAY_ROWS: &[&[&str]] = &[
    &["2024-01-01", "eu"],
    &["2024-01-01", "us"],
    &["2024-01-02", "eu"],
    &["2024-01-02", "us"],
    &["2024-01-03", "eu"],
    &["2024-02-01", "eu"],
];

#[test]
fn alternatives_of_whole_keys_are_those_keys() {
    let shown = show(DAYS, DAY_ROWS, "(dt='2024-01-01' and region='eu') or (dt='2024-01-02' and region='us')", 64);
    assert_eq!(shown.ranges, ["2024-01-01/eu", "2024-01-02/us"]);
    assert!(shown.plan.is_exact && shown.plan.probes.is_empty());
    let keys = shown.plan.keys.unwrap();
    assert_eq!(keys.completeness, Completeness::Every);
    assert_eq!(keys.values, [row(&["2024-01-01", "eu"]), row(&["2024-01-02", "us"])]);
}

#[test]
fn as_many_alternatives_as_fit_an_expression() {
    let terms: Vec<String> = (1..=50).map(|n| format!("(dt='d{n:03}' and region='r{n:02}')")).collect();
    let shown = show(DAYS, &[], &terms.join(" or "), 256);
    assert!(shown.plan.is_exact && shown.plan.ranges.len() == 50);
    assert_eq!(shown.plan.keys.unwrap().values.len(), 50);
}

#[test]
fn a_prefix_of_the_keys_narrows_and_the_rest_is_judged() {
    for (expression, ranges, is_exact) in [
        ("dt = '2024-01-01'", &["2024-01-01/eu 2024-01-01/us"][..], true),
        ("dt like '2024-01%'", &["2024-01-01/eu 2024-01-01/us 2024-01-02/eu 2024-01-02/us 2024-01-03/eu"], true),
        ("dt like '2024-02%' and region = 'eu'", &["2024-02-01/eu"], false),
        (
            "dt like '2024-0_-01'",
            &["2024-01-01/eu 2024-01-01/us 2024-01-02/eu 2024-01-02/us 2024-01-03/eu 2024-02-01/eu"],
            false,
        ),
        ("dt > '2024-01-02'", &["2024-01-03/eu 2024-02-01/eu"], true),
        (
            "dt between '2024-01-02' and '2024-01-03' and region = 'us'",
            &["2024-01-02/eu 2024-01-02/us 2024-01-03/eu"],
            false,
        ),
        (
            "dt in ('2024-01-01', '2024-01-03') and region in ('eu', 'xx')",
            &["2024-01-01/eu", "", "2024-01-03/eu", ""],
            true,
        ),
        ("dt = '2024-01-01' and region like 'e%'", &["2024-01-01/eu"], true),
        ("dt = '2024-01-01' and region <> 'eu'", &["", "2024-01-01/us"], true),
        (
            "dt = '2024-01-01' or region = 'eu'",
            &["2024-01-01/eu 2024-01-01/us 2024-01-02/eu 2024-01-02/us 2024-01-03/eu 2024-02-01/eu"],
            false,
        ),
        ("not (dt <> '2024-01-01' or region <> 'us')", &["2024-01-01/us"], true),
        ("(dt = '2024-01-01' and region = 'us') or dt > '2024-01-03'", &["2024-01-01/us", "2024-02-01/eu"], true),
        ("dt is null or dt = 'a' and dt = 'b'", &[], true),
    ] {
        let shown = show(DAYS, DAY_ROWS, expression, 64);
        assert_eq!(shown.ranges, ranges, "{expression}");
        assert_eq!(shown.plan.is_exact, is_exact, "{expression}");
    }
}

const HOURS: &[(&str, &str)] = &[("year", "int"), ("month", "int"), ("day", "int"), ("hour", "int")];
const HOUR_ROWS: &[&[&str]] = &[
    &["2015", "1", "1", "0"],
    &["2015", "01", "1", "00"],
    &["2015", "1", "1", "__HIVE_DEFAULT_PARTITION__"],
    &["2015", "1", "x", "1"],
    &["2015", "x", "1", "1"],
    &["2016", "1", "1", "1"],
    &["x", "1", "1", "1"],
    &["y", "2", "1", "1"],
];

#[test]
fn typed_keys_hold_all_spellings_and_are_probed() {
    let shown = show(HOURS, HOUR_ROWS, "year=2015 and month=1 and day=1 and hour=0", 64);
    assert_eq!(shown.ranges, ["2015/1/1/0 2015/01/1/00"]);
    assert!(shown.plan.is_exact);
    assert_eq!(shown.probes, ["3 all: ", "2 some: 2015/1/x/1", "1 some: 2015/x/1/1", "0 some: x/1/1/1 y/2/1/1"]);
    let keys = shown.plan.keys.unwrap();
    assert_eq!((keys.completeness, keys.values), (Completeness::Canonical, vec![row(&["2015", "1", "1", "0"])]));
    let shown = show(HOURS, HOUR_ROWS, "year = 2015", 64);
    assert_eq!(shown.probes, ["0 all: x/1/1/1 y/2/1/1"]);
    let shown = show(HOURS, HOUR_ROWS, "year=2015 and month=1 and day=1 and hour is null", 64);
    assert_eq!(shown.ranges, ["2015/1/1/__HIVE_DEFAULT_PARTITION__"]);
    assert!(shown.plan.keys.unwrap().completeness == Completeness::Canonical);
}

#[test]
fn ranges_of_numbers() {
    for (expression, ranges) in [
        (
            "((year < 2016) OR (year > 2016) OR (year = 3))",
            vec!["2015/1/1/0 2015/01/1/00 2015/1/1/__HIVE_DEFAULT_PARTITION__ 2015/1/x/1 2015/x/1/1", ""],
        ),
        ("((year >= 2016 AND year <= 2020) OR (year in (7, 9)))", vec!["", "", "2016/1/1/1"]),
        ("year between 2020 and 2000", vec![]),
        ("year is null", vec![""]),
    ] {
        assert_eq!(show(HOURS, HOUR_ROWS, expression, 64).ranges, ranges, "{expression}");
    }
}

#[test]
fn dates_are_spelled_in_one_way() {
    let shown = show(&[("d", "date")], &[&["2024-01-01"]], "d in ('2024-01-01', '2024-01-02')", 64);
    assert_eq!(shown.plan.keys.unwrap().completeness, Completeness::Every);
    let shown = show(&[("d", "date")], &[&["2024-01-01"]], "d > '2024-01-01' and d < '2024-01-02'", 64);
    assert_eq!((shown.ranges.len(), shown.probes.len()), (0, 1));
}

#[test]
fn too_many_ranges_are_joined_where_least_is_between() {
    let shown = show(DAYS, DAY_ROWS, "dt in ('2024-01-01', '2024-01-02', '2024-02-01') and region = 'eu'", 2);
    assert_eq!(shown.ranges, ["2024-01-01/eu 2024-01-01/us 2024-01-02/eu", "2024-02-01/eu"]);
    assert!(!shown.plan.is_exact);
    let product =
        "year in (1,2,3,4,5,6,7,8,9) and month in (1,2,3,4,5,6,7,8,9) and day in (1,2,3,4,5,6,7,8,9) and hour = 1";
    for max in [1, 7, 64, 256, 10_000] {
        let plan = show(HOURS, HOUR_ROWS, product, max).plan;
        assert!(plan.ranges.len() + plan.probes.len() <= max, "{max}");
    }
    assert_eq!(show(HOURS, HOUR_ROWS, product, 10_000).plan.ranges.len(), 729);
}

#[test]
fn a_key_whose_type_changed_is_not_narrowed_by() {
    let keys = columns(&[("a", "int"), ("b", "string")]);
    let compiled = compile("a = 1 and b = 'x'", &keys, Mode::Lenient).unwrap();
    let narrowed = |types: &[KeyType]| plan(&compiled, &Layout::of_table(types, 2), 9).ranges;
    assert_eq!(narrowed(&[KeyType::Text, KeyType::Text]), [KeyRange::with_prefix(vec![2])]);
    assert_eq!(narrowed(&[]), [KeyRange::with_prefix(vec![2])]);
    let first = Layout::of_table(&[KeyType::Integer], 2).range_of(2, &["1"]).unwrap();
    assert_eq!(narrowed(&[KeyType::Integer, KeyType::Integer]), [first]);
    assert!(narrowed(&[KeyType::Integer, KeyType::Other])[0].low.len() > 10);
}

#[test]
fn a_free_leading_key_is_stepped_over() {
    let keys = columns(&[("year", "int"), ("region", "string")]);
    let layout = Layout::of_table(&types(&keys), 2);
    let compiled = compile("region = 'eu'", &keys, Mode::Lenient).unwrap();
    let whole = plan(&compiled, &layout, 9);
    assert_eq!((whole.ranges, whole.is_exact), (vec![KeyRange::with_prefix(vec![2])], false));
    let step = layout.range_of(2, &["2015"]).unwrap();
    let within = plan_within(&compiled, &layout, &["2015"], 9);
    assert!(within.is_exact && within.keys.is_none());
    let key = |values| key_of(&types(&keys), &[0, 1], &row(values));
    for (values, is_within) in [(&["2015", "eu"], true), (&["02015", "eu"], true), (&["2015", "us"], false)] {
        assert!(step.contains(&key(values)));
        assert_eq!(within.ranges[0].contains(&key(values)), is_within);
    }
    assert!(step.high <= key(&["2016", "eu"]));
    assert_eq!(layout.range_of(2, &["2015", &"x".repeat(1000)]), None);
}

#[test]
fn many_keys_are_not_narrowed_by() {
    let names: Vec<String> = (0..300).map(|n| format!("k{n}")).collect();
    let keys: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "string")).collect();
    let keys = columns(&keys);
    let compiled = compile("k0 = 'x' and k299 = 'y'", &keys, Mode::Lenient).unwrap();
    let plan = plan(&compiled, &Layout::of_table(&[], 300), 9);
    assert_eq!(plan.ranges.len(), 1);
    assert!(plan.ranges[0].contains(&encode_key(&[], &vec!["x".to_owned(); 300])) && !plan.is_exact);
}
