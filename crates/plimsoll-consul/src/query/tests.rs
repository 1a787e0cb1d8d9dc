//! Conversations with an agent.

use proptest::prelude::*;

use super::*;

const MAX_STALE: Duration = Duration::from_secs(10);

struct Conversation {
    query: BlockingQuery,
    now: Instant,
}

impl Conversation {
    fn new() -> Self {
        Self {
            query: BlockingQuery::new(Consistency::Stale, MAX_STALE),
            now: Instant::ORIGIN,
        }
    }

    /// Waits as long as it says, and returns the index and consistency of the next query.
    fn ask(&mut self) -> (u64, Consistency) {
        loop {
            match self.query.poll_step(self.now) {
                Step::Wait(until) => self.now = until,
                Step::Query { index, consistency } => return (index, consistency),
            }
        }
    }

    fn answer(&mut self, index: u64) -> Answer {
        self.query.handle_answer(meta(index), self.now)
    }
}

const fn meta(index: u64) -> AnswerMeta {
    AnswerMeta {
        index,
        last_contact: Duration::ZERO,
        knows_leader: true,
    }
}

const fn state(is_continuous: bool, is_reset: bool) -> Answer {
    Answer::State {
        is_continuous,
        is_reset,
    }
}

#[test]
fn queries_follow_the_index() {
    let mut agent = Conversation::new();
    assert_eq!(agent.ask(), (0, Consistency::Stale));
    assert_eq!(agent.answer(7), state(false, false));
    assert_eq!(agent.ask().0, 7);
    assert_eq!(agent.answer(7), Answer::Unchanged, "the time was over");
    assert_eq!(agent.ask().0, 7);
    assert_eq!(agent.answer(9), state(true, false));
    assert_eq!(agent.ask().0, 9);
}

#[test]
fn an_index_that_became_smaller_is_asked_for_at_once() {
    let mut agent = Conversation::new();
    agent.ask();
    agent.answer(1000);
    agent.ask();
    assert_eq!(agent.answer(3), state(false, true));
    assert_eq!(agent.ask().0, 0);
    assert_eq!(agent.answer(3), state(false, false));
    assert_eq!(agent.ask().0, 3);
}

#[test]
fn an_index_of_zero_does_not_make_a_busy_loop() {
    let mut agent = Conversation::new();
    agent.ask();
    assert_eq!(agent.answer(0), state(false, false));
    assert_eq!(agent.ask().0, 1);
}

#[test]
fn answers_are_at_least_an_interval_apart() {
    let mut agent = Conversation::new();
    for index in 1..10 {
        agent.ask();
        let before = agent.now;
        agent.answer(index);
        agent.ask();
        assert!(agent.now.saturating_duration_since(before) >= MIN_INTERVAL);
    }
}

#[test]
fn what_the_first_answer_after_a_failure_lacks_was_not_necessarily_removed() {
    let mut agent = Conversation::new();
    agent.ask();
    agent.answer(7);
    agent.ask();
    agent.query.handle_failure(0, agent.now);
    assert_eq!(
        agent.ask().0,
        0,
        "a server that lost its data would let it wait"
    );
    assert_eq!(
        agent.answer(7),
        state(false, false),
        "perhaps of another agent"
    );
    agent.ask();
    assert_eq!(agent.answer(8), state(true, false));
}

#[test]
fn an_agent_that_comes_back_without_its_data_is_a_reset() {
    let mut agent = Conversation::new();
    agent.ask();
    agent.answer(1000);
    agent.ask();
    agent.query.handle_failure(0, agent.now);
    agent.ask();
    assert_eq!(agent.answer(3), state(false, true));
    assert_eq!(agent.ask().0, 3);
    assert_eq!(agent.answer(4), state(true, false));
}

#[test]
fn failures_wait_longer_and_longer() {
    let mut agent = Conversation::new();
    let mut waits = Vec::new();
    for _ in 0..10 {
        agent.ask();
        let before = agent.now;
        agent.query.handle_failure(u64::MAX / 2, before);
        agent.ask();
        waits.push(agent.now.saturating_duration_since(before));
    }
    assert!(waits[0] >= FIRST_BACKOFF / 2 && waits[0] <= FIRST_BACKOFF);
    assert!(waits[9] >= LONGEST_BACKOFF / 2 && waits[9] <= LONGEST_BACKOFF);
    agent.ask();
    agent.answer(1);
    let before = agent.now;
    agent.ask();
    assert!(agent.now.saturating_duration_since(before) < FIRST_BACKOFF);
}

#[test]
fn an_answer_of_a_server_that_lost_the_leader_is_asked_for_again() {
    let mut agent = Conversation::new();
    agent.ask();
    let old = AnswerMeta {
        last_contact: MAX_STALE + Duration::from_millis(1),
        ..meta(7)
    };
    let alone = AnswerMeta {
        knows_leader: false,
        ..meta(7)
    };
    for stale in [old, alone] {
        assert_eq!(agent.query.handle_answer(stale, agent.now), Answer::TooOld);
        let (_, consistency) = agent.ask();
        assert_eq!(consistency, Consistency::Default);
        // Whatever the leader says is right.
        let answer = agent.query.handle_answer(stale, agent.now);
        assert_ne!(answer, Answer::TooOld);
        assert_eq!(agent.ask().1, Consistency::Stale);
    }
}

proptest! {
    /// Whatever indices an agent sends, and whatever fails: the next query never waits for an index
    /// above the last one that was sent, and never more often than the interval.
    #[test]
    fn no_index_is_waited_for_that_was_not_sent(
        answers in prop::collection::vec(prop::option::of(0_u64..5), 1..40)
    ) {
        let mut agent = Conversation::new();
        let mut last = 0;
        for answer in answers {
            let before = agent.now;
            let (index, _) = agent.ask();
            prop_assert!(index <= last.max(1));
            prop_assert!(before == Instant::ORIGIN || agent.now > before);
            match answer {
                Some(sent) => {
                    agent.answer(sent);
                    last = sent;
                }
                None => agent.query.handle_failure(7, agent.now),
            }
        }
    }
}
