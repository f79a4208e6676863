//! Parses a customer's actions: `search[red lamp]`, `click[buy now]`.

/// An action, its argument in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShopAction {
    /// Types into the search bar and searches; valid on every page.
    Search(String),
    /// Clicks the element with this text.
    Click(String),
}

impl ShopAction {
    /// Parses an action: a name, an opening bracket, an argument up to the last closing bracket, all on the
    /// first line (upstream `parse_action`). The rest is ignored. `None` for anything else, on which the shop
    /// does nothing.
    pub fn parse(text: &str) -> Option<Self> {
        let line = text.split('\n').next().unwrap_or_default();
        let close = line.rfind(']')?;
        let before = line.get(..close)?;
        let argument_at = |open: &usize| before.get(open + 1..).is_some_and(|argument| !argument.is_empty());
        let open = before.rmatch_indices('[').map(|(open, _)| open).find(argument_at)?;
        let argument = before.get(open + 1..)?.to_lowercase();
        match before.get(..open)? {
            "search" => Some(Self::Search(argument)),
            "click" => Some(Self::Click(argument)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn brackets_are_read_greedily() {
        for (text, action) in [
            ("click[Buy Now] please", Some(ShopAction::Click("buy now".to_owned()))),
            ("search[ a ]]", Some(ShopAction::Search(" a ]".to_owned()))),
            ("click[]]", Some(ShopAction::Click("]".to_owned()))),
            ("search[a[b]", None),
            ("Click[a]", None),
            ("click[]", None),
            ("click[a\n]", None),
            ("buy now", None),
        ] {
            assert_eq!(ShopAction::parse(text), action, "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "(click|search)?[\\[\\]a-zİé\n ]{0,20}") {
            ShopAction::parse(&text);
        }
    }
}
