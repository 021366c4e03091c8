//! Listing by key ranges, several at a time. Where to cut is learnt from keys that are known already, whatever folders
//! they lie in: those of the references, or of an earlier listing. A bad guess costs time and nothing else.

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use serde::{Deserialize, Serialize};

use super::SweepError;
use super::survey::list_request;
use crate::location::Location;
use crate::store::{Listed, ReadObjects};

/// Ranges that are listed at the same time.
pub const RANGES_MAX: usize = 8;
/// Keys that are remembered to cut by.
const SAMPLE_MAX: usize = 1024;

/// Keys after one key and up to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRange {
    /// Listed so far.
    pub after: Option<String>,
    /// Belongs to the range; none: everything that follows.
    pub until: Option<String>,
    pub is_done: bool,
}

/// A sample of keys that stays small: of those whose hash begins with enough zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySample {
    keys: Vec<(u64, String)>,
    level: u32,
    seen: u64,
}

impl KeySample {
    /// `hash` is spread evenly and belongs to the key.
    pub fn note(&mut self, hash: u64, key: &str) {
        self.seen = self.seen.saturating_add(1);
        self.take(hash, key);
    }

    /// So many keys were noted, of which these are known.
    pub fn note_some(&mut self, count: u64, some: &[(u64, String)]) {
        self.seen = self.seen.saturating_add(count);
        some.iter().for_each(|(hash, key)| self.take(*hash, key));
    }

    /// So many keys were noted, of which these are a sample.
    pub fn note_sample(&mut self, count: u64, sample: &KeySample) {
        self.note_some(count, &sample.keys);
    }

    fn take(&mut self, hash: u64, key: &str) {
        if hash.leading_zeros() < self.level {
            return;
        }
        self.keys.push((hash, key.to_owned()));
        while self.keys.len() > SAMPLE_MAX && self.level < u64::BITS {
            self.level = self.level.saturating_add(1);
            let level = self.level;
            self.keys.retain(|(hash, _)| hash.leading_zeros() >= level);
        }
    }

    /// How many keys were noted.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    pub fn keys(&self) -> Vec<String> {
        self.keys.iter().map(|(_, key)| key.clone()).collect()
    }
}

/// Cuts what lies below a prefix into at most so many ranges, at keys that share out the sample evenly.
pub fn cut(prefix: &str, sample: Vec<String>, parts: usize) -> Vec<KeyRange> {
    let mut keys: Vec<String> = sample.into_iter().filter(|key| key.starts_with(prefix)).collect();
    keys.sort_unstable();
    keys.dedup();
    let parts = parts.clamp(1, RANGES_MAX).min(keys.len().saturating_add(1));
    let mut ranges = Vec::with_capacity(parts);
    let mut after = None;
    for part in 1..parts {
        let until = keys.get(part.saturating_mul(keys.len()).div_euclid(parts)).cloned();
        ranges.push(KeyRange { after: after.take(), until: until.clone(), is_done: false });
        after = until;
    }
    ranges.push(KeyRange { after, until: None, is_done: false });
    ranges
}

pub fn are_done(ranges: &[KeyRange]) -> bool {
    ranges.iter().all(|range| range.is_done)
}

/// A page of the range with that number, and the range behind it.
type Listing = Result<(usize, Vec<Listed>, KeyRange), SweepError>;

/// The next page of each range that has more, listed at the same time. On an error nothing counts as listed.
pub async fn next_pages(
    objects: &dyn ReadObjects,
    folder: &Location,
    ranges: &mut [KeyRange],
) -> Result<Vec<Vec<Listed>>, SweepError> {
    // Boxed, since the compiler cannot see through closures that the whole is `Send`.
    let mut asked: Vec<BoxFuture<'_, Listing>> = Vec::new();
    for (index, range) in ranges.iter().enumerate().filter(|(_, range)| !range.is_done) {
        let range = range.clone();
        asked.push(
            async move { next_page(objects, folder, range).await.map(|(page, range)| (index, page, range)) }.boxed(),
        );
    }
    let answers: Vec<_> = stream::iter(asked).buffered(RANGES_MAX).collect().await;
    let answers = answers.into_iter().collect::<Result<Vec<_>, SweepError>>()?;
    let mut pages = Vec::with_capacity(answers.len());
    for (index, page, range) in answers {
        if let Some(listed) = ranges.get_mut(index) {
            *listed = range;
        }
        pages.push(page);
    }
    Ok(pages)
}

async fn next_page(
    objects: &dyn ReadObjects,
    folder: &Location,
    range: KeyRange,
) -> Result<(Vec<Listed>, KeyRange), SweepError> {
    let mut request = list_request(folder);
    request.start_after = range.after.clone();
    let mut page = objects.list(&request).await?;
    let before = page.objects.len();
    if let Some(until) = &range.until {
        page.objects.retain(|object| object.key <= *until);
    }
    let is_done = !page.truncated || page.objects.is_empty() || page.objects.len() < before;
    let after = page.objects.last().map(|object| object.key.clone()).or(range.after);
    Ok((page.objects, KeyRange { after, until: range.until, is_done }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::memory::MemoryWorld;
    use crate::store::{ObjectKey, Objects, PutOptions};
    use crate::sweep::blob::hash64;

    #[test]
    fn a_sample_stays_small_and_cuts_evenly() {
        let mut sample = KeySample::default();
        for number in 0..50_000 {
            let key = format!("t/data/{number:06}");
            sample.note(hash64(&[key.as_bytes()]), &key);
        }
        assert_eq!(sample.seen(), 50_000);
        let keys = sample.keys();
        assert!((SAMPLE_MAX / 4..=SAMPLE_MAX).contains(&keys.len()), "{}", keys.len());
        let ranges = cut("t/", keys, 8);
        assert_eq!((ranges.len(), &ranges[0].after, &ranges[7].until), (8, &None, &None));
        let ends: Vec<i64> =
            ranges.iter().filter_map(|range| range.until.as_ref()).map(|key| key[7..].parse().unwrap()).collect();
        for (index, end) in ends.iter().enumerate() {
            let even = 6_250 * (index as i64 + 1);
            assert!((end - even).abs() < 3_000, "{ends:?}");
        }
        assert_eq!(cut("x/", sample.keys(), 8), vec![KeyRange::default()], "nothing known");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn every_key_is_listed_once_wherever_the_cuts_are(
            names in prop::collection::btree_set("[a-c/é]{1,4}", 0..60),
            cuts in prop::collection::vec("[a-d/é]{0,4}", 0..12),
            parts in 1_usize..9,
        ) {
            let world = MemoryWorld::new(0);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let folder = Location::new("b", "t");
                for name in &names {
                    let at = ObjectKey::new("b", format!("t/{name}"));
                    world.objects.put(&at, bytes::Bytes::new(), &PutOptions::default()).await.unwrap();
                }
                let cuts = cuts.iter().map(|cut| format!("t/{cut}")).collect();
                let mut ranges = cut("t/", cuts, parts);
                let mut found = Vec::new();
                while !are_done(&ranges) {
                    for page in next_pages(world.objects.as_ref(), &folder, &mut ranges).await.unwrap() {
                        found.extend(page.into_iter().map(|object| object.key));
                    }
                }
                found.sort_unstable();
                let expected: Vec<String> = names.iter().map(|name| format!("t/{name}")).collect();
                assert_eq!(found, expected);
            });
        }
    }

    #[tokio::test]
    async fn as_many_lists_as_pages_and_one_more_per_range() {
        let world = MemoryWorld::new(0);
        let folder = Location::new("b", "t");
        let keys: Vec<String> = (0..9_000).map(|number| format!("t/{number:05}")).collect();
        for key in &keys {
            world
                .objects
                .put(&ObjectKey::new("b", key.clone()), bytes::Bytes::new(), &PutOptions::default())
                .await
                .unwrap();
        }
        let mut ranges = cut("t/", keys.iter().step_by(100).cloned().collect(), 4);
        let before = world.objects.object_usage();
        let mut listed = 0;
        while !are_done(&ranges) {
            listed += next_pages(world.objects.as_ref(), &folder, &mut ranges)
                .await
                .unwrap()
                .iter()
                .map(Vec::len)
                .sum::<usize>();
        }
        let lists = world.objects.object_usage().since(&before).lists;
        assert_eq!(listed, 9_000);
        // 2,250 keys a range: three pages each.
        assert_eq!(lists, 12);
    }
}
