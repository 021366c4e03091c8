//! Proposals of commits: judging, claiming, publishing, verdicts.
