"""From a picture to an aligned crop: detection, landmarks, similarity transform."""
