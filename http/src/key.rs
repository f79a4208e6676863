//! An API key that is never displayed.

use std::fmt;

/// Replacement of the key, or of a long piece of it, in messages.
const MARK: &str = "[key]";
/// Minimum length of a piece of a key that is removed from messages. Servers often quote a part of the key.
const QUOTED: usize = 8;
/// Minimum length of a key that is removed from replies. Shorter keys, such as the `EMPTY` of local servers,
/// may be ordinary words.
const NO_WORD: usize = 16;

/// API key of a server. It is neither displayed nor written: `Debug` hides it, and it cannot be serialised.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerKey(String);

impl ServerKey {
    /// Stores a key.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// Returns the key, for use in a request header only.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Removes the key, and long pieces of it, from a message.
    pub fn redact(&self, message: &str) -> String {
        let key = self.0.as_str();
        let least = QUOTED.min(key.len()).max(1);
        let mut clean = String::with_capacity(message.len());
        let mut rest = message;
        while let Some(character) = rest.chars().next() {
            let common = rest.char_indices().map(|(at, character)| at + character.len_utf8());
            let piece = common.take_while(|end| key.contains(&rest[..*end])).last().unwrap_or(0);
            if piece >= least {
                clean.push_str(MARK);
                rest = &rest[piece..];
            } else {
                clean.push(character);
                rest = &rest[character.len_utf8()..];
            }
        }
        clean
    }

    /// Removes the key from a model's reply, because a server may echo the request.
    pub fn redact_reply(&self, reply: String) -> String {
        if self.0.len() >= NO_WORD && reply.contains(&self.0) { reply.replace(&self.0, MARK) } else { reply }
    }
}

impl fmt::Debug for ServerKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(MARK)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_taken_out_of_messages() {
        let secret = ServerKey::new("sk-0123456789abcdef");
        assert_eq!(secret.redact("wrong key sk-0123456789abcdef, é"), "wrong key [key], é");
        assert_eq!(secret.redact("wrong key sk-01234***9abcdef"), "wrong key [key]***9abcdef");
        assert_eq!(secret.redact("nothing"), "nothing");
        assert_eq!(format!("{secret:?}"), "[key]");
    }

    #[test]
    fn replies_lose_keys_and_no_words() {
        let secret = ServerKey::new("sk-0123456789abcdef");
        assert_eq!(secret.redact_reply("it is sk-0123456789abcdef".to_owned()), "it is [key]");
        assert_eq!(ServerKey::new("EMPTY").redact_reply("EMPTY".to_owned()), "EMPTY");
    }

    proptest! {
        #[test]
        fn no_message_holds_the_key(before in any::<String>(), key in "[!-~]{1,40}", after in any::<String>()) {
            prop_assume!(!MARK.contains(&key));
            let clean = ServerKey::new(key.clone()).redact(&format!("{before}{key}{after}"));
            prop_assert!(!clean.replace(MARK, "\u{0}").contains(&key), "{clean}");
        }
    }
}
