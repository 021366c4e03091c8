use lakewarden_core::ports::Deadline;
use lakewarden_core::store::Clock;

/// Times before this (September 2001) are no moments at which an invocation can end.
const EARLIEST_MOMENT_MS: i64 = 1_000_000_000_000;

/// When the invocation ends, from the runtime's `Lambda-Runtime-Deadline-Ms`. Lambda gives a moment; the emulator of
/// `cargo lambda watch` gives a duration (600000), and with that taken for a moment no function would ever have time.
pub fn deadline(clock: &dyn Clock, runtime_ms: u64) -> Deadline {
    let runtime_ms = i64::try_from(runtime_ms).unwrap_or(i64::MAX);
    if runtime_ms < EARLIEST_MOMENT_MS { Deadline::in_ms(clock, runtime_ms) } else { Deadline(runtime_ms) }
}

#[cfg(test)]
mod tests {
    use lakewarden_core::store::memory::ManualClock;

    use super::*;

    #[test]
    fn moments_stay_and_durations_count_from_now() {
        let clock = ManualClock::new(1_790_000_000_000);
        assert_eq!(deadline(&clock, 1_790_000_003_000), Deadline(1_790_000_003_000));
        assert_eq!(deadline(&clock, 600_000), Deadline(1_790_000_600_000));
        assert_eq!(deadline(&clock, u64::MAX), Deadline(i64::MAX));
    }
}
