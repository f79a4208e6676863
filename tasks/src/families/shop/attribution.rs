//! The first click of an episode that had no effect.

use crate::call::{ToolCall, ToolReply};
use crate::families::NamedError;
use crate::outcome::Step;

/// Returns the first click on something that was not on the page.
pub(crate) fn first_error(steps: &[Step]) -> Option<NamedError> {
    let mut page: Option<&[String]> = None;
    for step in steps {
        let Step::Call { turn, call: ToolCall::Shop(request), reply: ToolReply::Shop(reply) } = step else {
            continue;
        };
        if let (Some(clickables), Some(clicked)) = (page, clicked(&request.action))
            && !clickables.iter().any(|text| *text == clicked.to_lowercase())
        {
            return Some(NamedError {
                turn: *turn,
                name: Some(clicked.to_owned()),
                detail: format!("`{clicked}` is not on the page, so the click had no effect"),
            });
        }
        page = Some(&reply.clickables);
    }
    None
}

/// What an action clicks on.
fn clicked(action: &str) -> Option<&str> {
    action.strip_prefix("click[")?.strip_suffix(']')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::shop::{ShopReply, ShopRequest};

    fn acted(turn: u32, action: &str, clickables: &[&str]) -> Step {
        Step::Call {
            turn,
            call: ToolCall::Shop(ShopRequest { reset: false, replay: Vec::new(), action: action.to_owned() }),
            reply: ToolReply::Shop(ShopReply {
                observation: String::new(),
                clickables: clickables.iter().map(|&text| text.to_owned()).collect(),
                purchase: None,
            }),
        }
    }

    #[test]
    fn the_first_click_without_effect_is_found() {
        let results = ["back to search", "b01", "b02"];
        let item = ["back to search", "< prev", "buy now", "red"];
        let mut steps = vec![
            acted(1, "search[lamp]", &results),
            acted(2, "click[B01]", &item),
            acted(3, "click[< prev]", &results),
        ];
        assert_eq!(first_error(&steps), None);
        steps.extend([acted(3, "click[b022]", &results), acted(4, "click[blue]", &results)]);
        let error = first_error(&steps).unwrap();
        assert_eq!((error.turn, error.name.as_deref()), (3, Some("b022")));
    }
}
