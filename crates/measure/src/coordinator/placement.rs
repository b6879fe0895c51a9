//! Chooses the core of each party of an instance.

use crate::case::{Case, Place, Role};
use crate::limits::end_cpus;

/// The core of each party of a role, or of a broker. `None` means not pinned.
///
/// Each party has its own core as long as there are enough. If there are too few, producers share
/// some cores and consumers share the others. With two cores, all producers are on the first one,
/// and all consumers and the broker on the second.
pub(crate) fn cores(role: Role, case: &Case, cpus: &[usize]) -> Vec<Option<usize>> {
    let (producers, consumers) = (case.senders(), case.consumers());
    let parties = match role {
        Role::All => producers + consumers,
        // One process runs all producers.
        Role::Producer(_) if case.pattern.is_one_sender() => producers,
        _ => 1,
    };
    let ends = end_cpus(cpus);
    let (Some(&first), Some(&last)) = (ends.first(), ends.last()) else { return vec![None; parties] };
    match case.place {
        Place::Free => return vec![None; parties],
        Place::SameCore => return vec![Some(first); parties],
        Place::OtherCore | Place::OtherHost if ends.len() < 2 => return vec![Some(first); parties],
        Place::OtherCore | Place::OtherHost => {}
    }
    // The first producer's core first, the first consumer's core last, the other cores between them
    // in order.
    let between = cpus.iter().copied().filter(|cpu| !ends.contains(cpu));
    let all: Vec<usize> = std::iter::once(first).chain(between).chain([last]).collect();
    let receiving = match producers + consumers <= all.len() {
        true => consumers,
        // The consumers' share of the cores, in proportion to their number.
        false => (all.len() * consumers / (producers + consumers)).clamp(1, all.len() - 1),
    };
    let (rest, receive) = all.split_at(all.len() - receiving);
    let producer = |index: usize| Some(rest[index % rest.len()]);
    let consumer = |index: usize| Some(receive[receive.len() - 1 - index % receive.len()]);
    match role {
        Role::All => (0..producers).map(producer).chain((0..consumers).map(consumer)).collect(),
        Role::Producer(index) => (index..index + parties).map(producer).collect(),
        Role::Consumer(index) => vec![consumer(index)],
        // A core of its own if one is left, otherwise the first consumer's core.
        Role::Broker => vec![Some(if rest.len() > producers { rest[rest.len() - 1] } else { last })],
    }
}

/// The cores on which a case runs. All of `cpus` if its parties are not pinned.
pub(crate) fn used(roles: &[Role], case: &Case, cpus: &[usize]) -> Vec<usize> {
    let pinned: Option<Vec<usize>> = roles.iter().flat_map(|role| cores(*role, case, cpus)).collect();
    pinned.unwrap_or_else(|| cpus.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Cell, Load, Pattern, Payload};
    use crate::spec::{Runtime, Scope, Wait};

    fn case(producers: usize, place: Place) -> Case {
        let (scope, pattern, payload) = (Scope::Thread, Pattern::FanIn, Payload::U64);
        let (runtime, wait) = (Runtime::Thread, Wait::Block);
        let cell =
            Cell { scope, pattern, payload, producers, capacity: 1, runtime, wait, place, load: Load::Saturated };
        Case { mechanism: String::from("thread/x"), cell }
    }

    #[test]
    fn each_end_has_its_own_core_as_long_as_there_are_enough() {
        let fan_in = |producers, cpus: &[usize]| cores(Role::All, &case(producers, Place::OtherCore), cpus);
        assert_eq!(fan_in(2, &[7, 9]), [Some(7), Some(7), Some(9)]);
        assert_eq!(fan_in(1, &[7]), [Some(7), Some(7)]);
        assert_eq!(fan_in(1, &[]), [None, None]);
        assert_eq!(fan_in(3, &[1000, 1001, 1002, 1003]), [1000, 1002, 1003, 1001].map(Some));
        assert_eq!(fan_in(9, &[1000, 1001, 1002])[..4], [1000, 1002, 1000, 1002].map(Some));
    }

    #[test]
    fn writers_are_placed_like_producers_and_all_connections_share_one_core() {
        let mut case = case(3, Place::OtherCore);
        case.cell.pattern = Pattern::Writers;
        assert_eq!(cores(Role::Producer(0), &case, &[1000, 1001, 1002, 1003]), [1000, 1002, 1003].map(Some));
        assert_eq!(cores(Role::Producer(0), &case, &[7, 9]), [Some(7); 3]);
        assert_eq!(cores(Role::Consumer(0), &case, &[7, 9]), [Some(9)]);
        case.cell.pattern = Pattern::Connections;
        assert_eq!(cores(Role::Producer(0), &case, &[7, 9]), [Some(7)]);
        assert_eq!(cores(Role::Consumer(0), &case, &[7, 9]), [Some(9)]);
    }

    #[test]
    fn several_consumers_and_a_broker_have_their_own_cores_as_long_as_there_are_enough() {
        let mut case = case(3, Place::OtherCore);
        case.cell.pattern = Pattern::PubSub;
        let cpus: Vec<usize> = (1000..1006).collect();
        assert_eq!(cores(Role::All, &case, &cpus), [1000, 1001, 1005, 1004].map(Some));
        assert_eq!(cores(Role::Broker, &case, &cpus), [Some(1003)]);
        assert_eq!(cores(Role::All, &case, &cpus[..2]), [1000, 1001, 1001, 1001].map(Some));
        assert_eq!(cores(Role::Broker, &case, &cpus[..2]), [Some(1001)]);
        assert_eq!(cores(Role::Broker, &case, &cpus[..4]), [Some(1001)]);
    }

    #[test]
    fn free_is_not_pinned_and_same_core_is_one_core() {
        assert_eq!(cores(Role::Consumer(0), &case(1, Place::Free), &[0, 1]), [None]);
        assert_eq!(cores(Role::All, &case(1, Place::SameCore), &[0, 1]), [Some(0), Some(0)]);
    }
}
