//! A group within one process.

use std::sync::Arc;

use estafette_ipc::group::{BellFile, ClaimError, Interrupt, Member, Publisher, RingControl, RingFile};
use estafette_ipc::{OpenError, WaitMode};

pub(crate) const ALL: usize = usize::MAX;

/// A group's memory, and one interrupt for all of its ends.
pub(crate) struct Group {
    pub(crate) rings: Vec<RingFile>,
    pub(crate) bell: BellFile,
    pub(crate) interrupt: Arc<Interrupt>,
    pub(crate) wait: WaitMode,
}

impl Group {
    pub(crate) fn new(rings: usize, capacity: usize, members: usize) -> Self {
        let rings = (0..rings).map(|_| RingFile::create(capacity, members).unwrap()).collect();
        Self { rings, bell: BellFile::create().unwrap(), interrupt: Interrupt::new(), wait: WaitMode::Block }
    }

    pub(crate) fn publisher(&self, ring: usize) -> Publisher {
        Publisher::open(&self.rings[ring], &self.bell, self.wait, self.interrupt.clone()).unwrap()
    }

    pub(crate) fn try_member(&self, index: usize) -> Result<Member, OpenError> {
        let rings = self.rings.iter().map(|ring| ring.try_clone().unwrap()).collect();
        Member::open(rings, &self.bell, index, self.wait, self.interrupt.clone())
    }

    pub(crate) fn member(&self, index: usize) -> Member {
        self.try_member(index).unwrap()
    }

    pub(crate) fn control(&self, ring: usize) -> RingControl {
        RingControl::open(&self.rings[ring], &self.bell).unwrap()
    }
}

/// Claims and acknowledges messages. Returns them with their attempts.
pub(crate) fn take(member: &mut Member, max_messages: usize) -> Option<Vec<(u8, Vec<u8>)>> {
    let claim = member.try_claim(ALL, max_messages).unwrap()?;
    let messages = claim.messages().map(|message| (message.attempts, message.data.to_vec())).collect();
    claim.ack();
    Some(messages)
}

pub(crate) fn numbers(messages: &[(u8, Vec<u8>)]) -> Vec<u8> {
    messages.iter().map(|(_, data)| data[0]).collect()
}

/// Claims and acknowledges all messages until the ring ends. Returns each with the index of its
/// publisher.
pub(crate) fn collect(mut member: Member) -> Vec<(u32, u32)> {
    let mut seen = Vec::new();
    let mut last = [None; 2];
    let mut turn = 0;
    loop {
        turn += 1;
        let claim = match member.claim(600, 1 + turn % 7) {
            Ok(claim) => claim,
            Err(ClaimError::Closed) => return seen,
            Err(error) => panic!("{error}"),
        };
        for message in claim.messages() {
            let word = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().unwrap());
            let (ring, number) = (word(0), word(4));
            assert_eq!(message.data, message[..8].repeat(1 + number as usize % 9), "torn");
            assert!(last[ring as usize].replace(number) < Some(number));
            seen.push((ring, number));
        }
        claim.ack();
    }
}
