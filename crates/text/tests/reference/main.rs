//! Our encoder beside Hugging Face's on the same files.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod equality;
#[cfg(test)]
mod vocabularies;
