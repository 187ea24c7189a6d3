//! Tests of `ticket`.

use proptest::prelude::*;
use xdfs_proto::fault::{Code, Fault};

use super::*;
use crate::Scope;
use crate::export::Rights;
use crate::identity::ServerIdentity;

const HERE: Binding = [7; 32];
const ELSEWHERE: Binding = [8; 32];
const NOW: u64 = 1_785_400_000;
const HOUR: u64 = 3600;

fn scopes() -> Vec<Scope> {
    vec![Scope::new(b"results".to_vec(), Rights::READ | Rights::LIST)]
}

fn box_with_ticket() -> (TicketBox, Zeroizing<String>) {
    let mut tickets = TicketBox::new();
    let text = tickets.issue("ada", scopes(), NOW, HOUR).unwrap();
    (tickets, text)
}

fn the_one_refusal<T: std::fmt::Debug>(result: Result<T, Fault>) {
    let fault = result.unwrap_err();
    assert_eq!(fault.code, Code::AuthenticationFailed);
    assert_eq!(fault.cause, "the proof isn't accepted");
    let of_nothing = TicketBox::new().redeem(b"", &HERE, NOW).unwrap_err();
    assert_eq!(fault, of_nothing);
}

#[test]
fn a_ticket_is_good_once() {
    let (mut tickets, text) = box_with_ticket();
    let body = prove(&text, &HERE).unwrap();
    let granted = tickets.redeem(&body, &HERE, NOW + HOUR - 1).unwrap();
    let expected = Redeemed {
        user: "ada".to_owned(),
        scopes: scopes(),
        capability: None,
    };
    assert_eq!(granted, expected);
    assert!(tickets.is_empty());
    the_one_refusal(tickets.redeem(&body, &HERE, NOW));
    let again = prove(&text, &ELSEWHERE).unwrap();
    the_one_refusal(tickets.redeem(&again, &ELSEWHERE, NOW));
}

#[test]
fn a_ticket_for_some_uses_is_good_so_often() {
    let mut tickets = TicketBox::new();
    let text = tickets
        .issue_for_uses("ada", Vec::new(), NOW, HOUR, 3)
        .unwrap();
    let body = prove(&text, &HERE).unwrap();
    for _ in 0..3 {
        tickets.redeem(&body, &HERE, NOW).unwrap();
    }
    the_one_refusal(tickets.redeem(&body, &HERE, NOW));
}

#[test]
fn an_expired_ticket_is_refused_and_gone() {
    let (mut tickets, text) = box_with_ticket();
    let body = prove(&text, &HERE).unwrap();
    the_one_refusal(tickets.redeem(&body, &HERE, NOW + HOUR));
    assert!(tickets.is_empty());
    the_one_refusal(tickets.redeem(&body, &HERE, NOW));
}

#[test]
fn an_unknown_ticket_is_refused() {
    let (_, text) = box_with_ticket();
    let (mut others, _) = box_with_ticket();
    the_one_refusal(others.redeem(&prove(&text, &HERE).unwrap(), &HERE, NOW));
    assert_eq!(others.len(), 1);
}

#[test]
fn the_secret_that_stands_in_for_an_unknown_one_opens_nothing() {
    let mut tickets = TicketBox::new();
    let id = [3; 8];
    let mut body = id.to_vec();
    body.extend(tag(&Zeroizing::new([0; 32]), &HERE, &id).as_ref());
    the_one_refusal(tickets.redeem(&body, &HERE, NOW));
}

#[test]
fn a_proof_is_worth_nothing_on_another_channel() {
    let (mut tickets, text) = box_with_ticket();
    let body = prove(&text, &HERE).unwrap();
    the_one_refusal(tickets.redeem(&body, &ELSEWHERE, NOW));
    tickets.redeem(&body, &HERE, NOW).unwrap();
}

#[test]
fn wrong_proofs_dont_use_a_ticket_up_but_eight_end_it() {
    for (wrong, is_left) in [(7, true), (8, false)] {
        let (mut tickets, text) = box_with_ticket();
        let body = prove(&text, &HERE).unwrap();
        let mut altered = body.clone();
        altered[39] ^= 1;
        for _ in 0..wrong {
            the_one_refusal(tickets.redeem(&altered, &HERE, NOW));
        }
        let last = tickets.redeem(&body, &HERE, NOW);
        assert_eq!(last.is_ok(), is_left);
        if !is_left {
            the_one_refusal(last);
        }
    }
}

#[test]
fn no_byte_of_a_proof_can_be_altered() {
    for at in 0..40 {
        let (mut tickets, text) = box_with_ticket();
        let mut body = prove(&text, &HERE).unwrap();
        body[at] ^= 1;
        the_one_refusal(tickets.redeem(&body, &HERE, NOW));
    }
}

#[test]
fn bodies_of_other_lengths_are_refused() {
    let (mut tickets, text) = box_with_ticket();
    let body = prove(&text, &HERE).unwrap();
    for cut in 0..body.len() {
        // Bodies with the complete id count as wrong proofs.
        let (mut fresh, text) = box_with_ticket();
        let body = prove(&text, &HERE).unwrap();
        the_one_refusal(fresh.redeem(&body[..cut], &HERE, NOW));
    }
    the_one_refusal(tickets.redeem(&[&body[..], &[0]].concat(), &HERE, NOW));
    tickets.redeem(&body, &HERE, NOW).unwrap();
}

#[test]
fn the_number_of_tickets_is_bounded_and_expired_ones_make_room() {
    let mut tickets = TicketBox::new();
    for _ in 0..1023 {
        tickets.issue("ada", Vec::new(), NOW, 10).unwrap();
    }
    let text = tickets.issue("ada", Vec::new(), NOW, HOUR).unwrap();
    let fault = tickets.issue("bob", Vec::new(), NOW + 9, HOUR).unwrap_err();
    assert_eq!(fault.code, Code::LimitExceeded);
    tickets.issue("bob", Vec::new(), NOW + 10, HOUR).unwrap();
    assert_eq!(tickets.len(), 2);
    let body = prove(&text, &HERE).unwrap();
    tickets.redeem(&body, &HERE, NOW + 10).unwrap();
}

#[test]
fn what_a_ticket_holds_is_bounded() {
    let mut tickets = TicketBox::new();
    let long = Scope::new(vec![b'a'; 4097], Rights::READ);
    let faults = [
        tickets.issue("ada", Vec::new(), NOW, 0),
        tickets.issue("ada", Vec::new(), NOW, 30 * 24 * HOUR + 1),
        tickets.issue(&"a".repeat(257), Vec::new(), NOW, HOUR),
        tickets.issue("ada", vec![long], NOW, HOUR),
        tickets.issue("ada", vec![scopes()[0].clone(); 65], NOW, HOUR),
        tickets.issue_for_uses("ada", Vec::new(), NOW, HOUR, 0),
    ];
    for fault in faults {
        assert_eq!(fault.unwrap_err().code, Code::InvalidArgument);
    }
    assert!(tickets.is_empty());
    tickets
        .issue("ada", Vec::new(), u64::MAX - 1, HOUR)
        .unwrap();
}

#[test]
fn a_text_is_all_or_nothing() {
    let (_, text) = box_with_ticket();
    assert_eq!(text.len(), 54);
    let texts = [
        "",
        &text[1..],
        &format!("{}A", *text),
        &format!("+{}", &text[1..]),
        &format!("{}=", &text[1..]),
        &format!("\u{e9}{}", &text[2..]),
    ]
    .map(str::to_owned);
    for text in texts {
        let fault = prove(&text, &HERE).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument);
        assert!(text.is_empty() || !format!("{fault:?}").contains(&text));
    }
}

#[test]
fn debug_shows_no_secret() {
    let (tickets, _) = box_with_ticket();
    assert_eq!(format!("{tickets:?}"), "TicketBox { tickets: 1, .. }");
}

proptest! {
    #[test]
    fn random_bodies_are_refused(
        body in proptest::collection::vec(any::<u8>(), 0..80),
        with_id in any::<bool>(),
    ) {
        let (mut tickets, text) = box_with_ticket();
        let mut body = body;
        if with_id {
            let id = prove(&text, &HERE).unwrap();
            body.splice(..body.len().min(8), id[..8].iter().copied());
        }
        prop_assert!(tickets.redeem(&body, &HERE, NOW).is_err());
    }

    #[test]
    fn random_texts_are_no_reason_to_panic(text in ".{0,60}") {
        let _ = prove(&text, &HERE);
    }
}

fn capability(holder: &ServerIdentity) -> Capability {
    Capability {
        holder: holder.fingerprint(),
        copy: xdfs_proto::third_party::CopyId([3; 16]),
        path: b"data/file".to_vec(),
        writes: false,
        opens: Opens::File { bytes_max: 1000 },
    }
}

#[test]
fn a_capability_is_good_for_its_holder_once_on_one_channel() {
    let [holder, thief] = [(), ()].map(|()| ServerIdentity::temporary(&[]).unwrap());
    let mut tickets = TicketBox::new();
    let granted = capability(&holder);
    let text = tickets
        .issue_capability("ada", granted.clone(), NOW, 60)
        .unwrap();
    // By a thief of the text, with another key or none.
    the_one_refusal(tickets.redeem(&prove(&text, &HERE).unwrap(), &HERE, NOW));
    let stolen = prove_as(&thief, &text, &HERE).unwrap();
    the_one_refusal(tickets.redeem(&stolen, &HERE, NOW));
    let body = prove_as(&holder, &text, &HERE).unwrap();
    // On another channel, and with the signature of another one.
    the_one_refusal(tickets.redeem(&body, &ELSEWHERE, NOW));
    let elsewhere = prove_as(&holder, &text, &ELSEWHERE).unwrap();
    let mixed = [&body[..40], &elsewhere[40..]].concat();
    the_one_refusal(tickets.redeem(&mixed, &HERE, NOW));
    let mixed = [&body[..40], &stolen[40..]].concat();
    the_one_refusal(tickets.redeem(&mixed, &HERE, NOW));
    let redeemed = tickets.redeem(&body, &HERE, NOW + 59).unwrap();
    assert_eq!(
        (redeemed.user.as_str(), redeemed.capability),
        ("ada", Some(granted))
    );
    let scope = Scope::new(b"data/file".to_vec(), Rights::READ);
    assert_eq!(redeemed.scopes, [scope]);
    the_one_refusal(tickets.redeem(&body, &HERE, NOW));
}

#[test]
fn a_capability_has_an_end_and_a_ticket_no_holder() {
    let holder = ServerIdentity::temporary(&[]).unwrap();
    let mut tickets = TicketBox::new();
    let text = tickets
        .issue_capability("ada", capability(&holder), NOW, 60)
        .unwrap();
    let body = prove_as(&holder, &text, &HERE).unwrap();
    the_one_refusal(tickets.redeem(&body, &HERE, NOW + 60));
    let (mut tickets, text) = box_with_ticket();
    let body = prove_as(&holder, &text, &HERE).unwrap();
    the_one_refusal(tickets.redeem(&body, &HERE, NOW));
}

proptest! {
    #[test]
    fn no_damaged_proof_of_a_capability_is_taken(at in 0usize..400, bit in 0u8..8, cut: bool) {
        let holder = ServerIdentity::temporary(&[]).unwrap();
        let mut tickets = TicketBox::new();
        let text = tickets.issue_capability("ada", capability(&holder), NOW, 60).unwrap();
        let mut body = prove_as(&holder, &text, &HERE).unwrap();
        let at = at % body.len();
        match cut {
            true => body.truncate(at),
            false => body[at] ^= 1 << bit,
        }
        the_one_refusal(tickets.redeem(&body, &HERE, NOW));
    }
}
