class BaseConfig:
    attribute_map = {}
    use_cache = True


class ModelConfig(BaseConfig):  #! subclass pkg.config.BaseConfig
    attribute_map = {"num_heads": "n_head"}  #? string pkg.config.ModelConfig.n_head
    n_head: int = 2  #! define pkg.config.ModelConfig.n_head

    def __init__(self, width=8, **kwargs):
        self.width = width  #! define pkg.config.ModelConfig.width
        if self.n_head > 2:  #! read pkg.config.ModelConfig.n_head
            self.n_head = 2  #! define pkg.config.ModelConfig.n_head


class OtherConfig(BaseConfig):  #! subclass pkg.config.BaseConfig
    def __init__(self, width=4):
        self.width = width


class WideConfig(ModelConfig):  #! subclass pkg.config.ModelConfig
    def widen(self):
        return self.width * 2  #! read pkg.config.ModelConfig.width
