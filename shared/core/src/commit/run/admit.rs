//! From an admission to a published version.

use super::{Run, Step};
use crate::commit::candidate::Candidate;
use crate::commit::claim::{self, Claimed, Durable, LostTo};
use crate::commit::content::Content;
use crate::commit::context::CLAIM_MS;
use crate::commit::error::CommitError;
use crate::commit::exact;
use crate::commit::files::{self, FileError};
use crate::commit::head::LogStore;
use crate::commit::judge::Admission;
use crate::commit::keys::content_hash;
use crate::commit::log_store::{self, Look};
use crate::commit::proposal::{Proposal, Status};
use crate::commit::publish::{self, Published};
use crate::commit::rebase;
use crate::commit::restored;
use crate::commit::row_level;
use crate::commit::vectors::check_vectors;
use crate::commit::view::View;

/// Waiting for a sweep's fence, altogether.
const FENCE_WAIT_MS: i64 = 8_000;
const FENCE_POLL_MS: u64 = 500;

/// Files that were seen to exist, and passed.
pub(super) struct Proof {
    /// `View::unbroken_since`.
    seen_under: String,
    /// Schema and partitioning that the files were compared with.
    admission: Admission,
    checked: files::Checked,
}

impl Run<'_> {
    pub(super) async fn admit(
        &mut self,
        view: &mut View,
        mut proposal: Proposal,
        content: &Content,
        candidate: &Candidate,
        admission: Admission,
    ) -> Result<Step, CommitError> {
        if let Err(refusal) = exact::check_unchanged(&self.staged.key, candidate, &admission) {
            return self.refuse(&view.head, &proposal, refusal, Status::Rejected).await;
        }
        if self.wait_for_fence(view).await? {
            return Ok(Step::Again);
        }
        self.ahead.read_footers(self.ctx, content, &view.unbroken_since).await;
        match self.prove_or_restore(view, candidate, &admission).await {
            Ok(warnings) => {
                proposal.warnings = admission.warnings.iter().cloned().chain(warnings).collect();
            }
            Err(FileError::Refused(refusal)) => {
                return self.refuse(&view.head, &proposal, refusal, Status::Rejected).await;
            }
            Err(FileError::Failed(error)) => return Err(error),
        }
        match row_level::edits::prepare(self.ctx, &view.root, &admission.publication).await {
            Ok(()) => {}
            Err(FileError::Refused(refusal)) => {
                return self.refuse(&view.head, &proposal, refusal, Status::Rejected).await;
            }
            Err(FileError::Failed(error)) => return Err(error),
        }
        let log_store = log_store::of_table(&view.head, Some(&admission.metadata));
        let durable = self.durable(&proposal, content, &admission, log_store).await?;
        let head = view.settled_head();
        let claimed = claim::claim(self.ctx, &head, &proposal, admission.version, &durable, log_store).await?;
        let (head, proposal) = match claimed {
            Claimed::Yes { head, proposal } => (head, proposal),
            Claimed::No => return Ok(Step::Again),
            Claimed::LogStoreEntry => {
                self.look = Look::Always;
                return Ok(Step::Again);
            }
        };
        let Some(claim) = head.claim.clone() else { return Ok(Step::Again) };
        let (ctx, Run { ahead, .. }) = (self.ctx, &mut *self);
        let publishing = publish::publish(ctx, &view.root, &durable.bytes, &claim);
        let ((), published) = futures::join!(ahead.look_at_next(ctx), publishing);
        match published? {
            Published::Ours { etag } => {
                let done = claim::complete(self.ctx, &head, &proposal, &claim, &durable.bytes, etag).await?;
                let Some(completed) = done else { return Ok(Step::Again) };
                let proposal = completed.proposal.clone();
                view.advance(completed);
                Ok(Step::Done(Box::new(proposal)))
            }
            Published::Foreign => {
                claim::lose(self.ctx, &head, &proposal, &claim, LostTo::Others).await?;
                Ok(Step::Again)
            }
        }
    }

    /// Waits while a sweep holds the fence; true if the table must be read again.
    async fn wait_for_fence(&mut self, view: &View) -> Result<bool, CommitError> {
        let Some(fence) = view.head.active_fence(self.ctx.now_ms()) else { return Ok(false) };
        if self.fence_waited_ms >= FENCE_WAIT_MS {
            return Err(CommitError::Fenced { run: fence.run.clone() });
        }
        self.ctx.check_time("waiting for a sweep", CLAIM_MS)?;
        self.ctx.ports().clock.sleep_ms(FENCE_POLL_MS).await;
        self.fence_waited_ms += i64::try_from(FENCE_POLL_MS).unwrap_or(i64::MAX);
        Ok(true)
    }

    /// Looks at the files once more when some that were missing have come back from where a sweep put them.
    async fn prove_or_restore(
        &mut self,
        view: &View,
        candidate: &Candidate,
        admission: &Admission,
    ) -> Result<Vec<String>, FileError> {
        let warnings = match self.prove_files(view, candidate, admission).await.map(<[String]>::to_vec) {
            Ok(warnings) => warnings,
            Err(refused) => {
                let returned = restored::bring_back(self.ctx, &view.root, candidate, refused).await?;
                self.returned.extend(returned);
                self.prove_files(view, candidate, admission).await?.to_vec()
            }
        };
        Ok(self.returned.iter().cloned().chain(warnings).collect())
    }

    /// Footers once; existence again whenever somebody else wrote to the head since the footers were read.
    async fn prove_files(
        &mut self,
        view: &View,
        candidate: &Candidate,
        admission: &Admission,
    ) -> Result<&[String], FileError> {
        let under = &view.unbroken_since;
        match &mut self.proved {
            Some(proof)
                if proof.admission.schema == admission.schema && proof.admission.metadata == admission.metadata =>
            {
                if proof.seen_under != *under {
                    files::check_existence(self.ctx, candidate, &proof.checked.etags).await?;
                    check_vectors(self.ctx, &view.root, candidate, &admission.known).await?;
                    proof.seen_under.clone_from(under);
                }
            }
            _ => {
                let seen = self.ahead.seen(self.ctx, under);
                let checked = files::check_files(self.ctx, candidate, admission, seen).await?;
                check_vectors(self.ctx, &view.root, candidate, &admission.known).await?;
                self.proved = Some(Proof { seen_under: under.clone(), admission: admission.clone(), checked });
            }
        }
        Ok(self.proved.as_ref().map_or(&[], |proof| proof.checked.warnings.as_slice()))
    }

    /// The bytes to publish: what was staged, or a copy of our own where they have to change, or where writers with a log
    /// store may move what a claim names.
    async fn durable(
        &self,
        proposal: &Proposal,
        content: &Content,
        admission: &Admission,
        log_store: LogStore,
    ) -> Result<Durable, CommitError> {
        let after_ms = admission.timestamp_after_ms.filter(|_| !exact::is_exact(self.staged.key.id));
        let stamp_ms = after_ms.map(|after_ms| self.ctx.now_ms().max(after_ms.saturating_add(1)));
        let bytes = if stamp_ms.is_none() && admission.rebase.is_empty() {
            content.bytes.clone()
        } else {
            rebase::render(&content.bytes, &admission.rebase, stamp_ms)
        };
        if bytes == content.bytes && log_store == LogStore::Off {
            return Ok(Durable {
                at: self.staged.key.key(),
                etag: content.etag.clone(),
                sha256: content_hash(&bytes),
                bytes,
            });
        }
        claim::store_copy(self.ctx, &self.staged.key.root, admission.version, proposal, bytes).await
    }
}
