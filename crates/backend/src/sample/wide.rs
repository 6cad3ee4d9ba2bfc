//! Loops over a whole vocabulary, compiled twice: for every machine, and for those with wider vectors. Both give the same bits:
//! a compiler that may use wider vectors may still not reorder or contract operations on floats.

/// A function whose loops are simple enough to become vectors: no calls but to functions that are inlined for certain.
macro_rules! wide {
    ($(#[$about:meta])* $visibility:vis fn $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty $body:block) => {
        $(#[$about])*
        #[allow(unsafe_code, reason = "a function compiled for wider vectors is called where the processor has them")]
        $visibility fn $name($($argument: $kind),*) -> $result {
            #[inline(always)]
            fn everywhere($($argument: $kind),*) -> $result $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn wider($($argument: $kind),*) -> $result {
                    everywhere($($argument),*)
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the machine has what the function needs.
                    return unsafe { wider($($argument),*) };
                }
            }
            everywhere($($argument),*)
        }
    };
}

pub(super) use wide;
