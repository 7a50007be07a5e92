//! Wire description of a contract for the OpenAPI document: requests and responses.

use admit_core::Code;
use serde_json::{Value, json};

/// Wire description of a door, in OpenAPI 3.1 terms.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// One-line summary.
    pub summary: &'static str,
    /// Accepted request bodies: media types with their JSON Schema.
    pub request: Vec<(&'static str, Value)>,
    /// Responses, including every status that any layer can return at this door.
    pub answers: Vec<ResponseDescription>,
}

/// One kind of response.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseDescription {
    /// HTTP status.
    pub status: u16,
    /// Human-readable condition under which it is returned.
    pub when: String,
    /// Media type of the body.
    pub content_type: &'static str,
    /// JSON Schema of the body.
    pub schema: Value,
}

impl Description {
    /// Returns one response per status of `codes`, each listing its codes, all with a body of
    /// `schema`.
    ///
    /// `status` maps a code to the contract's HTTP status.
    pub fn refusals(
        codes: &[Code],
        status: impl Fn(Code) -> u16,
        content_type: &'static str,
        schema: &Value,
    ) -> Vec<ResponseDescription> {
        let mut answers: Vec<ResponseDescription> = Vec::new();
        for code in codes {
            let status = status(*code);
            match answers.iter_mut().find(|answer| answer.status == status) {
                Some(answer) => {
                    answer.when.push_str(", ");
                    answer.when.push_str(code.as_str());
                }
                None => answers.push(ResponseDescription {
                    status,
                    when: code.as_str().to_owned(),
                    content_type,
                    schema: schema.clone(),
                }),
            }
        }
        answers.sort_by_key(|answer| answer.status);
        answers
    }
}

/// JSON in, JSON out: the default for a contract without a description of its own.
impl Default for Description {
    fn default() -> Self {
        let any = json!({ "type": "object" });
        let mut answers = vec![ResponseDescription {
            status: 200,
            when: "the verdict on the event".to_owned(),
            content_type: "application/json",
            schema: any.clone(),
        }];
        answers.extend(Self::refusals(Code::ALL, Code::http_status, "application/json", &any));
        Self { summary: "Send an event", request: vec![("application/json", json!({}))], answers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed_under_its_status() {
        let described = Description::default();
        for code in Code::ALL {
            let answer = described.answers.iter().find(|a| a.status == code.http_status());
            let answer = answer.unwrap_or_else(|| panic!("{code:?} has no answer"));
            assert!(answer.when.split(", ").any(|word| word == code.as_str()), "{answer:?}");
        }
    }
}
