"""ViTConfig: every choice that makes a Vision Transformer, checked once, and the table of named variants."""


class UserError(ValueError):
    """A mistake of the user's: one line that names the setting or file, its value and what would be right.

    Commands print it without a traceback and exit with status 2.
    """
