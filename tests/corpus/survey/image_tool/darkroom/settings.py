import os


class Settings:
    def __init__(self, folder, quality=90):
        self.folder = folder
        self.quality = quality or os.environ["DARKROOM_QUALITY"]
