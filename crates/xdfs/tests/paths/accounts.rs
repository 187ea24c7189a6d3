//! Users and groups of the server's system.

use xdfs::{Account, Answer, Attributes, Client, OwnerNames};

use crate::place::{Place, stat};

fn owned_by(client: &Client, uid: u32, gid: u32) -> Attributes {
    match client.call(stat("/")).unwrap() {
        Answer::Attributes(attributes) => Attributes {
            uid,
            gid,
            ..attributes
        },
        other => panic!("{other:?}"),
    }
}

/// A number that has no name on any usual system.
const NAMELESS: u32 = 0xdead_beef;

#[test]
fn names_are_remembered_for_as_long_as_the_session() {
    for is_protected in [false, true] {
        let place = Place::new(1, is_protected);
        let client = place.client(None);
        let [root, mixed, strange] = [(0, 0), (0, NAMELESS), (NAMELESS, NAMELESS)]
            .map(|(uid, gid)| owned_by(&client, uid, gid));
        let names = client.account_names(b"/", [&root, &mixed]).wait();
        let owner = |user: Option<&str>, group: Option<&str>| OwnerNames {
            user: user.map(Into::into),
            group: group.map(Into::into),
        };
        assert_eq!(names.of(&root), owner(Some("root"), Some("root")));
        assert_eq!(names.of(&mixed), owner(Some("root"), None));
        // It wasn't asked for.
        assert_eq!(names.of(&strange), owner(None, None));
        client.stop();
        client.look_up(b"/", &[Account::User(0)]).unwrap_err();
        let names = client.account_names(b"/", [&root, &strange]).wait();
        assert_eq!(names.of(&root), owner(Some("root"), Some("root")));
        assert_eq!(names.of(&strange), owner(None, None));
    }
}

#[test]
fn more_accounts_than_one_call_takes_are_answered_in_their_order() {
    let place = Place::new(2, false);
    let client = place.client(None);
    let mut accounts = vec![Account::User(NAMELESS); 500];
    assert_eq!(client.look_up(b"/", &accounts).unwrap(), vec![None; 500]);
    accounts[127] = Account::User(0);
    accounts[128] = Account::GroupNamed("root".into());
    accounts[499] = Account::UserNamed("root".into());
    let found = client.look_up(b"/", &accounts).unwrap();
    assert_eq!(found.len(), 500);
    let known: Vec<_> = found
        .iter()
        .enumerate()
        .filter_map(|(at, found)| Some((at, found.clone()?)))
        .collect();
    let expected = [
        (127, Account::UserNamed("root".into())),
        (128, Account::Group(0)),
        (499, Account::User(0)),
    ];
    assert_eq!(known, expected);
    assert_eq!(client.look_up(b"/", &[]).unwrap(), []);
}
